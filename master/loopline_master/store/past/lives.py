"""Lives of a database: one begins with its creation, with every restore, and when it returned to an earlier state.

A restored database would issue numbers again that were used after the backup. Users name files by them, so a restore
leaves numbers out: of jobs, and of attempts at the jobs that existed before. Results must not be confused even if a
gap is too small, so everything on a worker belongs to a life, and counts only in that life
(loopline_worker/core/kept_results.py). Units of limits are withheld at first, because unknown attempts of the lost
time may hold them (core/wings/resources). The same holds for a master that continues from a server that was behind
(Epoch.begin).
"""

from __future__ import annotations

import time
from secrets import token_hex

from sqlalchemy import Connection, insert, select, update

from loopline_master.store.log_snapshots import restart_log
from loopline_master.store.tables import grid, lives

JOB_GAP = 100_000
"""Job numbers left out, since jobs may have been submitted between the restored state and its loss."""
_BEGIN_OF_2026 = 1_767_225_600.0
"""Numbers of attempts at earlier jobs continue above the seconds since then: no task has an attempt each second."""


def begin_life(connection: Connection) -> None:
    """Begin another life."""
    connection.execute(insert(lives).values(id=token_hex(8), begun_at=time.time()))


def begin_again(connection: Connection) -> None:
    """Begin another life of a database that is back in an earlier state, and leave out numbers."""
    begin_life(connection)
    earlier = connection.scalar(select(grid.c.attempts_skipped)) or 0
    skipped = max(earlier + 1, int(time.time() - _BEGIN_OF_2026))
    gaps = {
        "restored_jobs": grid.c.next_job,
        "next_job": grid.c.next_job + JOB_GAP,
        "attempts_skipped": skipped,
        "units_withheld_until": None,
    }
    connection.execute(update(grid).values(gaps))
    restart_log(connection)  # no log leads to this number: replay continues from here


def current_life(connection: Connection) -> str:
    """Return the id of the life that the database is in; empty if it never began one."""
    return connection.scalar(select(lives.c.id).order_by(lives.c.number.desc()).limit(1)) or ""
