"""Exemptions: periods in which a job held no other job. Each is one row, whichever jobs passed it.

Its *evidence* is stored as it begins, and the audit checks it against the rows of attempts and workers
(``flaw_of``, called by store/audit.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loopline_master.core.kernel.entities import Freeze, Job, MeasuredWork
from loopline_shared.model import AttemptState, Facts

_ROUNDING = 1e-6
_AT_WORK = (AttemptState.RUNNING, AttemptState.FROZEN)


@dataclass(frozen=True, slots=True)
class Exemption:
    """A period in which later jobs could be released that otherwise had to wait for this job, with the reason."""

    job: int
    since: float
    reason: str  # paused, stalled, overdrawn
    until: float | None = None  # None: it has not ended

    def covers(self, later: Job) -> bool:
        """True if a later job was released within it, both ends included, as one step may do several things."""
        at = later.released_at
        return at is not None and self.since <= at and (self.until is None or at <= self.until)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Reasons for an exemption, as they were when it began."""

    job: int
    since: float
    reason: str
    size: float | None  # of the job
    limit: float = 0.0  # overdrawn: how many times its size it may use ...
    used: float = 0.0  # ... measured work of its results, in reference CPU-seconds ...
    attempts: tuple[MeasuredWork, ...] = ()  # ... and of its attempts without one
    starved_since: float | None = None  # stalled: no worker could run it since then; None: its idle budget is spent
    idle_s: float = 0.0  # time charged to its idle budget ...
    budget_s: float = 0.0  # ... and the budget


def renew(job: Job, before: str, reason: str, now: float) -> list[Exemption]:
    """End the exemption that a job had for the reason ``before``, and begin one for its present reason.

    Either reason may be empty. Return the rows to be stored.
    """
    ended = [Exemption(job.id, job.exempt_since, before, now)] if before and job.exempt_since is not None else []
    job.exempt_since = now if reason else None
    return [*ended, Exemption(job.id, now, reason)] if reason else ended


class JobRow(Protocol):
    """The fields of a job's row that the audit of its exemptions reads."""

    size: float | None
    entered_at: float | None
    paused: bool


class AttemptRow(Protocol):
    """The fields of an attempt's row that the audit of exemptions reads."""

    task: int
    number: int
    worker: str
    replica: bool
    state: AttemptState
    dispatched_at: float
    started_at: float | None
    freezes: tuple[Freeze, ...]
    is_set_up: bool
    fetch_s: float


class WorkerRow(Protocol):
    """The fields of a worker's row that the audit of exemptions reads."""

    reported_at: float | None
    facts: Facts
    work_done: float
    work_s: float


def flaw_of(
    evidence: Evidence,
    job: JobRow,
    measured: float,
    attempts: Sequence[AttemptRow],
    workers: Mapping[str, WorkerRow],
    known: Sequence[MeasuredWork],
    *,
    has_ended: bool = False,
) -> str:
    """Return why evidence does not found its exemption, judged by the rows at its begin; empty if it does.

    ``measured``: work of the job's results. ``attempts``: its attempts that are not over. ``workers``: their workers.
    ``known``: parts of the proof that earlier checks have confirmed; their attempts may have been lost since then.
    ``has_ended``: the exemption began and ended in one step.
    """
    if evidence.size != job.size:
        return f"the job has size {job.size}, not {evidence.size}"
    if evidence.reason == "overdrawn":
        return _flaw_of_proof(evidence, measured, attempts, workers, known)
    if evidence.reason == "paused":
        return "" if job.paused or has_ended else "the job was not paused"
    is_at_work = any(one.state in _AT_WORK for one in attempts)
    if evidence.starved_since is not None and evidence.starved_since <= evidence.since and not is_at_work:
        return ""
    if evidence.idle_s < max(evidence.budget_s, job.size or 0.0):
        return "an attempt was at work" if is_at_work else "a worker could run it, and its idle budget was not spent"
    was_there_s = evidence.since - (job.entered_at or 0.0)
    return "" if evidence.idle_s <= was_there_s + _ROUNDING else "it was charged for more time than it was there"


def _flaw_of_proof(
    evidence: Evidence,
    measured: float,
    attempts: Sequence[AttemptRow],
    workers: Mapping[str, WorkerRow],
    known: Sequence[MeasuredWork],
) -> str:
    if evidence.used > measured * (1 + _ROUNDING) + _ROUNDING:
        return f"results show {measured:.6g} CPU-seconds, not {evidence.used:.6g}"
    rows = {(one.task, one.number): one for one in attempts}
    for one in evidence.attempts:
        flaw = "" if one in known else _flaw_of_work(one, rows.get((one.task, one.attempt)), workers.get(one.worker))
        if flaw:
            return f"attempt {evidence.job}.{one.task}.{one.attempt} {flaw}"
    total = evidence.used + sum(one.work for one in evidence.attempts)
    if evidence.size is None or total <= evidence.limit * evidence.size:
        return f"{total:.6g} CPU-seconds are no more than {evidence.limit:g} times its size"
    return ""


def _flaw_of_work(work: MeasuredWork, row: AttemptRow | None, worker: WorkerRow | None) -> str:
    """Return why an attempt cannot have been measured at this work; empty if it can."""
    if row is None or worker is None or row.worker != work.worker:
        return f"does not exist on {work.worker}"
    if row.replica or row.state not in _AT_WORK:
        return f"does not count: it is {row.state}{' and a replica' if row.replica else ''}"
    if work.heard_at > (worker.reported_at or 0.0):
        return "counts beyond its worker's last Report"
    began_at, heard_at = row.started_at or row.dispatched_at, work.heard_at
    frozen_s = sum(max(0.0, min(end or heard_at, heard_at) - max(begin, began_at)) for begin, end in row.freezes)
    ran_s = heard_at - began_at - frozen_s - row.fetch_s if row.is_set_up else 0.0
    if work.seconds > max(0.0, ran_s) + _ROUNDING:
        return "counts for more time than it ran"
    fastest = worker.work_done / worker.work_s if worker.work_s else min(worker.facts.speed, 1.0)
    if work.speed > fastest * (1 + _ROUNDING):
        return f"counts at a speed of {work.speed:.6g}, and its worker's is {fastest:.6g}"
    return ""
