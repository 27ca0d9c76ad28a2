"""A clock that was ahead, set right: nothing in the rows is later than now, and all keeps its order.

The scheduler's time never goes back. So a master whose clock stood ten days ahead when it started would go on so for
ever, and its times with it. Once it starts with the right time again, before the scheduler reads the rows:

- what was after the last minute (``SQUEEZED_S``) and before the time of the last step moves into the last minute, in
  its order: comparisons, as of the audit of the guarantee, come out as before;
- what lay ahead of the last step (a planned start, the end of a quarantine, a retry) lies as far ahead of now.

The event log is the witness and stays unchanged; replay starts at a snapshot of these rows.
"""

from __future__ import annotations

import re

from sqlalchemy import Column, Connection, Double, Table, bindparam, case, delete, select, update

from loopline_master.core.kernel.entities import OCCUPYING
from loopline_master.store.log_snapshots import restart_log
from loopline_master.store.tables import attempts, carriers, grid, job_sums, metadata, samples, worker_sums

LEAD_S = 60.0
"""How far the scheduler's time may be ahead of the wall clock, which is also set in small steps."""
SQUEEZED_S = 60.0
_BY_THE_WALL = {"audit_log", "event_log", "join_tokens", "lives", "log_snapshots", "mastership", "tokens", "uploads"}
"""Tables whose times are no times of the scheduler."""
_TIME = re.compile(r"(.*_)?(at|until|since|now|start)|(first_)?(p50|p90|earliest|promised)(_p50)?|p[59]0_at")


def set_clock_right(connection: Connection, now: float) -> float:
    """Move the rows, if their time is ahead of ``now`` by more than LEAD_S; return by how much it was, else 0."""
    ahead = connection.scalar(select(grid.c.now)) or 0.0
    if ahead <= now + LEAD_S:
        return 0.0
    right = _Right(ahead, now)
    _move_freezes(connection, right)
    for table in metadata.sorted_tables:
        for column in times_of(table):
            later = update(table).where(column > right.base).values({column: right.moved(column)})
            connection.execute(later, right.values)
    connection.execute(delete(samples).where(samples.c.minute > now // 60))
    connection.execute(delete(carriers))  # each worker reports it again
    for table in (worker_sums, job_sums):  # they are made again
        connection.execute(delete(table))
    restart_log(connection)
    return ahead - now


def times_of(table: Table) -> list[Column[float]]:
    """Return the columns that are times of the scheduler."""
    if table.name in _BY_THE_WALL:
        return []
    return [each for each in table.columns if isinstance(each.type, Double) and _TIME.fullmatch(each.name)]


class _Right:
    """The rule that moves times: it is strictly increasing, and maps ``ahead`` to ``now``."""

    def __init__(self, ahead: float, now: float) -> None:
        self.base, self.ahead, self.lead = now - SQUEEZED_S, ahead, ahead - now
        self.ratio = SQUEEZED_S / (ahead - self.base)
        self.values = {"base": self.base, "ahead": ahead, "lead": self.lead, "ratio": self.ratio}

    def moved(self, column: Column[float]) -> object:
        """Return the expression for a column whose time is after the base."""
        base, ratio = bindparam("base", type_=Double), bindparam("ratio", type_=Double)
        ahead, lead = bindparam("ahead", type_=Double), bindparam("lead", type_=Double)
        return case((column > ahead, column - lead), else_=base + (column - base) * ratio)

    def __call__(self, time: float) -> float:
        """Return the same of one time."""
        if time <= self.base:
            return time
        return time - self.lead if time > self.ahead else self.base + (time - self.base) * self.ratio


def _move_freezes(connection: Connection, right: _Right) -> None:
    """Move the times within the freezes of attempts that are not over."""
    key = (attempts.c.job, attempts.c.task, attempts.c.number)
    is_live = (attempts.c.ended_at.is_(None), attempts.c.state.in_(OCCUPYING))
    frozen = select(*key, attempts.c.freezes).where(*is_live, attempts.c.freezes.is_not(None))
    for job, task, number, freezes in connection.execute(frozen).all():
        moved = tuple((right(begin), end if end is None else right(end)) for begin, end in freezes or ())
        where = (attempts.c.job == job, attempts.c.task == task, attempts.c.number == number)
        connection.execute(update(attempts).where(*where).values(freezes=moved))
