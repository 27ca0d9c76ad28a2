"""Careful replication: results of one task from different workers are compared, for free or for a quorum's sake.

A task of a job with a quorum succeeds when so many workers agree; the digests seen are kept on the task as votes, so
that a restart changes nothing. Each vote against the majority counts like a failure of the task.
"""

from __future__ import annotations

from collections.abc import Iterable

from loopline_master.core import accounting
from loopline_master.core.entities import Attempt, Job, Task, Vote
from loopline_master.core.rules.result_digest import digest_of
from loopline_master.core.state import State
from loopline_shared.model import TaskState


def decides(state: State, job: Job, task: Task, attempt: Attempt) -> bool:
    """Count a result. Return True if it decides its task."""
    if job.quorum is None:
        if len(state.index.attempts.of_task[task.id]) > 1:  # what the others bring will be compared with it
            task.votes = (Vote(attempt.number, attempt.worker, digest_of(job.spec, attempt), 0),)
        return True
    digest = digest_of(job.spec, attempt)
    task.votes += (Vote(attempt.number, attempt.worker, digest, accounting.enter_vote(job, attempt)),)
    if len({vote.digest for vote in task.votes}) > 1:
        _mark(state, job, task, ())
    is_reached = len({vote.worker for vote in task.votes if vote.digest == digest}) >= job.quorum
    if is_reached and accounting.is_extra(attempt):
        job.won_cpu_ms += task.votes[-1].cpu_ms
    return is_reached


def settle(state: State, job: Job, task: Task) -> None:
    """Account for the votes of a task that is over, and mark the workers whose results were outvoted."""
    if job.quorum is None:
        return
    winning = next((vote.digest for vote in task.votes if vote.attempt == task.winner), None)
    for vote in task.votes:
        if winning is None:
            job.lost_cpu_ms += vote.cpu_ms
        elif vote.digest == winning:
            job.useful_cpu_ms += vote.cpu_ms
        else:
            job.wasted_cpu_ms += vote.cpu_ms
    if task.mismatch:
        _mark(state, job, task, [vote.worker for vote in task.votes if vote.digest != winning])


def compare(state: State, job: Job, task: Task, attempt: Attempt) -> None:
    """Compare a result that came after its task had succeeded with the accepted one.

    If they differ and there was no quorum, either may be wrong: both workers are marked.
    """
    accepted = next((vote for vote in task.votes if vote.attempt == task.winner), None)
    if task.state is not TaskState.SUCCEEDED or accepted is None:
        return
    if digest_of(job.spec, attempt) != accepted.digest:
        is_new = not task.mismatch and job.quorum is None
        _mark(state, job, task, [attempt.worker, accepted.worker] if is_new else [attempt.worker])


def verdict(job: Job, task: Task) -> str:
    """Return why a task failed whose results disagree; empty if it has no votes."""
    if not task.votes:
        return ""
    return f"of {len(task.votes)} results, {task.agreeing} agree: the job's quorum is {job.quorum}"


def _mark(state: State, job: Job, task: Task, workers: Iterable[str]) -> None:
    """Mark the task as one whose results differ, and count a mismatch for each of these workers."""
    if not task.mismatch:
        task.mismatch = True
        job.mismatches += 1
        state.effects.mismatches.append(task.id)
        state.put(task)
        state.put(job)
    for name in workers:
        worker = state.workers[name]
        worker.mismatches += 1
        state.put(worker)
