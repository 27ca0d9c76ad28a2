"""What became of a job's CPU time: whole milliseconds on the job, so that sums depend on no order.

Useful, wasted and lost time make up all that is known. What an attempt took that nobody will hear of again is taken
to be the time for which its worker was heard of, until a result says better (one that comes when the attempt is
forgotten is put right where it is read: store/queries/accounting_queries.py).
"""

from __future__ import annotations

from loopline_master.core.entities import Attempt, Job, Task, Worker
from loopline_shared.model import Outcome, TaskState

_MOST_S = 1e9


def ms_of(seconds: float) -> int:
    return round((seconds if seconds < _MOST_S else _MOST_S) * 1000)


def assume_lost(job: Job, attempt: Attempt, worker: Worker) -> None:
    """Nobody knows what it took."""
    if attempt.started_at is not None and not attempt.assumed_cpu_ms:
        attempt.assumed_cpu_ms = ms_of(max(0.0, (worker.reported_at or 0.0) - attempt.started_at))
        _charge(job, attempt, attempt.assumed_cpu_ms)
        job.lost_cpu_ms += attempt.assumed_cpu_ms


def take_back(job: Job, attempt: Attempt) -> None:
    """It is at work still, or its result is here."""
    _charge(job, attempt, -attempt.assumed_cpu_ms)
    job.lost_cpu_ms -= attempt.assumed_cpu_ms
    attempt.assumed_cpu_ms = 0


def enter(job: Job, task: Task, attempt: Attempt, outcome: Outcome) -> None:
    """An attempt has ended and will not be voted on: with its task as it is now."""
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
    """What the result took, which counts only when its task has been decided."""
    ms = ms_of(attempt.cpu_s)
    _charge(job, attempt, ms)
    return ms


def is_extra(attempt: Attempt) -> bool:
    """A replica to be quicker or safer, not one that a quorum needs."""
    return attempt.replica and not attempt.asked


def budget_left(job: Job, reserved_ms: int) -> bool:
    """Whether the job may have another replica; ``reserved_ms``: what those at work are expected to take."""
    return job.budget_s is None or job.replicated_cpu_ms + reserved_ms < ms_of(job.budget_s)


def expected_ms(attempt: Attempt) -> int:
    """What it is expected to take of its job's budget for replicas."""
    return ms_of(attempt.expected_s) if is_extra(attempt) else 0


def _charge(job: Job, attempt: Attempt, ms: int) -> None:
    if attempt.replica and is_extra(attempt):
        job.replicated_cpu_ms += ms
