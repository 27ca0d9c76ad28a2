"""``python -m loopline_worker.presence``: the reporter of a desktop."""

from __future__ import annotations

import sys

from loopline_worker.presence.reporter import main

if __name__ == "__main__":
    sys.exit(main())
