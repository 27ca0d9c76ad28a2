"""A master on a slower disk: ``python -m benchmarks.light.slow_disk SECONDS [options of the master]``.

Each commit that changes anything takes SECONDS longer; nothing else differs.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from functools import partial
from typing import Any

from loopline_master.__main__ import main

DELAY_S = float(sys.argv[1])


class SlowConnection(sqlite3.Connection):
    _changes = 0

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.total_changes != self._changes:
            self._changes = self.total_changes
            time.sleep(DELAY_S)
        return super().execute(sql, *values)


if __name__ == "__main__":
    sqlite3.dbapi2.connect = partial(sqlite3.connect, factory=SlowConnection)  # type: ignore[assignment]
    sys.exit(main(sys.argv[2:]))
