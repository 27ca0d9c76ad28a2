"""Sums of large jobs over their attempts: for pieces of ``PIECE`` tasks, and for each worker within a piece.

They are made beside the loop, once all tasks of a piece are over, and read in place of its attempts from then on.
They are always right: the commit that changes an attempt of a piece deletes the piece's sums, which are then made
again. What has none yet is read from the attempts: little of a job that runs, as long as its tasks start in their
order.

The numbers of pieces are stored in the database: a change of ``PIECE`` deletes all sums, by a migration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, delete, func, insert, select

from loopline_master.core.kernel.effects import Effects
from loopline_master.store.database import Transact
from loopline_master.store.history.attempt_sums import USED, WENT
from loopline_master.store.tables import attempts, job_sums, jobs, tasks, worker_sums
from loopline_shared.model import AttemptState, TaskState

PIECE = 50_000
"""Tasks of a piece, whose attempts are read in some 50 ms."""
LARGE = 10_000
"""Jobs with at least this number of tasks are summed up."""

Tasks = tuple[int, int]
"""Numbers of tasks: the first, and the last."""
Values = dict[str, Any]
_ENDED = attempts.c.ended_at.is_not(None)
_LIVE = and_(attempts.c.ended_at.is_(None), attempts.c.state != AttemptState.LOST)
_OVER = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)
_SUMS: tuple[ColumnElement[Any], ...] = (
    *(func.coalesce(column.element.filter(_ENDED), 0).label(column.name) for column in USED),
    *WENT,
    func.count().label("dispatched"),
    *(func.min(attempts.c[f"{what}_at"]).label(f"first_{what}_at") for what in ("dispatched", "ended")),
    *(func.max(attempts.c[f"{what}_at"]).label(f"last_{what}_at") for what in ("dispatched", "ended")),
)
_OF_WORKER = [column.name for column in worker_sums.c]


def piece_of(task: int) -> int:
    """Return the piece of a task."""
    return (task - 1) // PIECE


def tasks_of(piece: int, count: int) -> Tasks:
    """Return the tasks of a piece of a job with ``count`` tasks."""
    return piece * PIECE + 1, min(count, (piece + 1) * PIECE)


def tasks_without(count: int, pieces: Collection[int]) -> list[Tasks]:
    """Return the tasks of a job outside these pieces, as few long ranges."""
    stretches: list[Tasks] = []
    for piece in range(piece_of(count) + 1):
        if piece not in pieces:
            first, last = tasks_of(piece, count)
            if stretches and stretches[-1][1] == first - 1:
                first = stretches.pop()[0]
            stretches.append((first, last))
    return stretches


def among(job: int, tasks: Tasks) -> ColumnElement[bool]:
    """Return the condition on attempts of these tasks."""
    return and_(attempts.c.job == job, attempts.c.task >= tasks[0], attempts.c.task <= tasks[1])


def is_large() -> ColumnElement[bool]:
    """Return the condition on jobs that are summed up."""
    is_one: ColumnElement[bool] = jobs.c.task_count >= LARGE
    return is_one


class Summed:
    """Memory of the pieces that may have sums, and of the jobs that may have pieces to be summed up."""

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self.due: set[int] = set()
        self.in_hand: tuple[int, int] | None = None  # the piece that is being summed up, unless it has changed
        self._pieces: dict[int, set[int]] = {}
        for job, piece in known:
            self._pieces.setdefault(job, set()).add(piece)

    def of(self, job: int) -> frozenset[int]:
        """Return the pieces of a job that may have sums."""
        return frozenset(self._pieces.get(job, ()))

    def begin(self, job: int, piece: int) -> None:
        """Start on a piece: from now on changes of its attempts are noted."""
        self._pieces.setdefault(job, set()).add(piece)
        self.in_hand = job, piece

    def end(self, job: int, piece: int, *, is_kept: bool) -> None:
        """Lay a piece aside that was in hand; ``is_kept``: it has sums now."""
        self.in_hand = None
        if not is_kept:
            self._pieces.get(job, set()).discard(piece)

    def shortened(self, job: int) -> None:
        """Hear that attempts of a job are about to be deleted, and their sums with them."""
        self.due.discard(job)
        if self.in_hand and self.in_hand[0] == job:
            self.in_hand = None

    def changed(self, effects: Effects) -> list[Values]:
        """Hear of a step before its commit; return keys of the sums that it makes wrong, for ``forget_sums``."""
        for job in effects.jobs.values():
            if job.task_count >= LARGE:
                self.due.add(job.id)
        for gone in effects.forgotten_jobs:
            self.shortened(gone)
            self._pieces.pop(gone, None)
        if not self._pieces:
            return []
        seen = (*effects.attempts, *(result.attempt for _, result in effects.late))
        wrong = {(job, piece_of(task)) for job, task, _ in seen if job in self._pieces}
        return [self._drop(job, piece) for job, piece in sorted(wrong) if piece in self._pieces[job]]

    def _drop(self, job: int, piece: int) -> Values:
        self._pieces[job].discard(piece)
        self.due.add(job)
        if self.in_hand == (job, piece):
            self.in_hand = None
        return {"of_job": job, "of_piece": piece}


class JobSums:
    """Makes sums, one piece at a time, while the master runs."""

    def __init__(self, read: Transact, write: Transact, summed: Summed) -> None:
        self._read, self._write, self._summed = read, write, summed
        self._has_looked = False

    async def sum_next(self) -> bool:
        """Sum up one piece; False if none is due."""
        due = self._summed.due
        if not self._has_looked:
            due |= await self._read(lambda connection: set(connection.scalars(select(jobs.c.id).where(is_large()))))
            self._has_looked = True
        for job in sorted(due):
            due.discard(job)
            left, ready = await self._read(partial(_pieces_of, job=job, known=self._summed.of(job)))
            if left:
                due.add(job)
            for piece in ready:
                if await self._sum(job, piece):
                    return True
        return False

    async def _sum(self, job: int, piece: int) -> bool:
        """Sum up a piece; False if it changed during the work, or has running attempts.

        The attempts are read beside the writer, which only stores the sums, so that no commit waits.
        """
        self._summed.begin(job, piece)
        await self._write(_nothing, is_short=True)  # the read below sees commits that were under way
        rows = await self._read(partial(_sums_of, job=job, piece=piece))
        is_kept = self._summed.in_hand == (job, piece) and not any(row.live for row in rows)
        self._summed.end(job, piece, is_kept=is_kept)
        if is_kept:
            await self._write(partial(_keep, job=job, piece=piece, rows=rows))
        return is_kept


def known_pieces(connection: Connection) -> list[tuple[int, int]]:
    """Return the pieces that have sums: their job, and their number."""
    return [(row.job, row.piece) for row in connection.execute(select(job_sums.c.job, job_sums.c.piece))]


def forget_sums(connection: Connection, keys: Sequence[Values]) -> None:
    """Delete the sums of these pieces."""
    for statement in _FORGET:
        connection.execute(statement, keys)


def shorten_sums(connection: Connection, job: int, first: int) -> None:
    """Delete the sums of the pieces of a job that have this task or a later one."""
    for table in (worker_sums, job_sums):
        connection.execute(delete(table).where(table.c.job == job, table.c.piece >= piece_of(first)))


def _nothing(connection: Connection) -> None:
    """Do nothing, after all earlier writes."""


def _pieces_of(connection: Connection, job: int, known: Collection[int]) -> tuple[bool, list[int]]:
    """Return whether pieces of a job will be due later, and the pieces that may be summed up now."""
    row = connection.execute(select(jobs.c.departure, jobs.c.task_count).where(jobs.c.id == job)).one_or_none()
    if row is None:
        return False, []
    others = [piece for piece in range(piece_of(row.task_count) + 1) if piece not in known]
    if row.departure is not None:
        return bool(others), others
    return True, [piece for piece in others if _is_over(connection, job, tasks_of(piece, row.task_count))]


def _is_over(connection: Connection, job: int, numbers: Tasks) -> bool:
    """True if all of these tasks are over. Those that were never started have no row."""
    first, last = numbers
    here = (tasks.c.job == job, tasks.c.number >= first, tasks.c.number <= last, tasks.c.state.in_(_OVER))
    return connection.scalar(select(func.count()).where(*here)) == last - first + 1


def _sums_of(connection: Connection, job: int, piece: int) -> Sequence[Row[Any]]:
    """Return the sums of each worker in a piece, and how many attempts go on."""
    live = func.count().filter(_LIVE).label("live")
    query = select(attempts.c.worker, live, *_SUMS).where(among(job, (piece * PIECE + 1, (piece + 1) * PIECE)))
    return connection.execute(query.group_by(attempts.c.worker)).all()


def _keep(connection: Connection, job: int, piece: int, rows: Sequence[Row[Any]]) -> None:
    values = [{"job": job, "piece": piece, **row._mapping} for row in rows]
    connection.execute(insert(job_sums), {"job": job, "piece": piece, **_total(values)})
    if values:
        connection.execute(insert(worker_sums), [{name: row[name] for name in _OF_WORKER} for row in values])


def _total(rows: Sequence[Values]) -> Values:
    """Return the sums of all workers together."""
    total: Values = {name: sum(row[name] for row in rows) for name in _ADDED}
    for name, extreme in _EXTREMES.items():
        total[name] = extreme((row[name] for row in rows if row[name] is not None), default=None)
    return {**total, "slowest_s": total["slowest_s"] or 0.0}


_EXTREMES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("first_dispatched_at", "first_ended_at"), min),
    **dict.fromkeys(("last_dispatched_at", "last_ended_at", "slowest_s"), max),
}
_ADDED = [column.name for column in _SUMS if column.name not in _EXTREMES]
_FORGET = [
    delete(table).where(table.c.job == bindparam("of_job"), table.c.piece == bindparam("of_piece"))
    for table in (worker_sums, job_sums)
]
