"""Accounting of a job's CPU time, in whole milliseconds on the job, so that sums depend on no order.

Useful, wasted and lost time add up to all that is known. An attempt of which no result has come is assumed to have
run for as long as its worker reported, until a result says better. (A result that comes after the attempt was
forgotten is corrected where it is read: store/queries/accounting_queries.py.)
"""

from __future__ import annotations

from loopline_master.core.entities import Attempt, Job, Task, Worker
from loopline_shared.model import Outcome, TaskState

_MOST_S = 1e9


def ms_of(seconds: float) -> int:
    return round((seconds if seconds < _MOST_S else _MOST_S) * 1000)


def assume_lost(job: Job, attempt: Attempt, worker: Worker) -> None:
    """Count the time of an attempt as lost, from its start to the last Report of its worker."""
    if attempt.started_at is not None and not attempt.assumed_cpu_ms:
        attempt.assumed_cpu_ms = ms_of(max(0.0, (worker.reported_at or 0.0) - attempt.started_at))
        _charge(job, attempt, attempt.assumed_cpu_ms)
        job.lost_cpu_ms += attempt.assumed_cpu_ms


def undo_assumed_loss(job: Job, attempt: Attempt) -> None:
    """Undo ``assume_lost``: the attempt is still running, or its result has come."""
    _charge(job, attempt, -attempt.assumed_cpu_ms)
    job.lost_cpu_ms -= attempt.assumed_cpu_ms
    attempt.assumed_cpu_ms = 0


def enter(job: Job, task: Task, attempt: Attempt, outcome: Outcome) -> None:
    """Count the CPU time of an attempt that has ended, by its outcome and the present state of its task."""
    ms = ms_of(attempt.cpu_s)
    _charge(job, attempt, ms)
    if attempt.accepted:
        job.useful_cpu_ms += ms
        job.won_cpu_ms += ms if attempt.replica and is_extra(attempt) else 0
    elif task.state is TaskState.SUCCEEDED or (task.is_open and outcome is Outcome.CANCELLED):
        job.wasted_cpu_ms += ms
    else:
        job.lost_cpu_ms += ms


def enter_vote(job: Job, attempt: Attempt) -> int:
    """Return the CPU time of a vote; the job counts it by outcome once its task is decided."""
    ms = ms_of(attempt.cpu_s)
    _charge(job, attempt, ms)
    return ms


def is_extra(attempt: Attempt) -> bool:
    """True if the attempt is a replica for speed or safety, not one that a quorum needs."""
    return attempt.replica and not attempt.asked


def budget_left(job: Job, reserved_ms: int) -> bool:
    """True if the job's budget allows another replica.

    ``reserved_ms`` is what the replicas that are running are expected to take.
    """
    return job.budget_s is None or job.replicated_cpu_ms + reserved_ms < ms_of(job.budget_s)


def expected_ms(attempt: Attempt) -> int:
    """Return the part of its job's replica budget that the attempt is expected to use."""
    return ms_of(attempt.expected_s) if is_extra(attempt) else 0


def _charge(job: Job, attempt: Attempt, ms: int) -> None:
    if attempt.replica and is_extra(attempt):
        job.replicated_cpu_ms += ms
