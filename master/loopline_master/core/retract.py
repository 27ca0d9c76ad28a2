"""What was sent ahead is taken back where it would wait in vain: its worker goes away, its job is paused, or another
worker is idle and would be done with it earlier. Nothing of it has run, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from loopline_master.core import lifecycle
from loopline_master.core.entities import Attempt, Job, Worker
from loopline_master.core.estimates import measure
from loopline_master.core.policies.view import View
from loopline_master.core.state import State

_CLEARLY_S = 0.05
"""A move costs a frame to each of two workers: it has to bring the end so much nearer."""
_LOOK_AT = 4
"""So many workers' queues are looked at for one that is idle, the longest first ..."""
_OFFER_TO = 8
"""... and so many idle workers at each step."""


def relieve(state: State, view: View, *, unless_ready: bool) -> Iterator[None]:
    """Have idle workers begin what only waits elsewhere; ``unless_ready``: none that could start something else, for
    that is the policy's affair. (What has not begun at all comes before replicas.)
    """
    for name in [entry[-1] for entry in state.index.room.idle.order[:_OFFER_TO]]:
        worker = state.workers[name]
        if unless_ready and any(key in state.index.ready for key in view.keys_met(worker)):
            continue
        while state.index.room.free_slots(worker) > 0 and (attempt := _worth_moving(state, view, worker)):
            _move(state, attempt, worker)
            yield


def take_back_from(state: State, worker: Worker, reason: str) -> None:
    for attempt_id in list(state.index.attempts.queues.of_worker.get(worker.name, ())):
        lifecycle.take_back(state, state.attempts[attempt_id], reason)


def take_back_of(state: State, job: Job, reason: str) -> None:
    for number in list(state.index.pools[job.id].kept):
        for attempt in list(state.index.attempts.of_task.get(job.task_id(number), {}).values()):
            if attempt.is_queued:
                lifecycle.take_back(state, attempt, reason)


def _move(state: State, attempt: Attempt, worker: Worker) -> None:
    job = state.jobs[attempt.job]
    lifecycle.cancel_attempt(state, attempt, f"worker {worker.name} could begin it earlier")
    lifecycle.start_attempt(state, job, attempt.task, worker)


def _worth_moving(state: State, view: View, worker: Worker) -> Attempt | None:
    """The attempt that would begin last of those that this idle worker would be done with clearly earlier."""
    for wait_ms, name in state.index.room.laden.order[:_LOOK_AT]:
        donor, queue = state.workers[name], state.index.attempts.queues.of_worker[name]
        last = state.attempts[state.index.attempts.queues.latest_on(name)]
        job = state.jobs[last.job]
        there_s = (
            (-wait_ms - queue[last.id] / max(1, donor.offered)) / 1e3 + _until_free_s(state, donor) + last.expected_s
        )
        is_better = view.expected_s(job, last.task, worker) + _CLEARLY_S < there_s
        may_run = view.fits(job, worker) and not view.is_on(job, last.task, worker)
        if is_better and may_run and not view.should_go_elsewhere(job, last.task, worker):
            return last
    return None


def _until_free_s(state: State, worker: Worker) -> float:
    """Until the first of its slots falls free."""
    seated = state.index.attempts.seated_on(worker.name)
    return min((measure.left_of(state.grid, state.jobs[a.job], worker, a) for a in seated), default=0.0)
