"""A master on a slower disk: ``python -m benchmarks.light.slow_disk SECONDS [options of the master]``.

Each commit takes so much longer; nothing else differs.
"""

from __future__ import annotations

import sys
import time

from sqlalchemy import Engine, event

from master.__main__ import main

if __name__ == "__main__":
    delay_s = float(sys.argv[1])
    event.listen(Engine, "commit", lambda _: time.sleep(delay_s))
    sys.exit(main(sys.argv[2:]))
