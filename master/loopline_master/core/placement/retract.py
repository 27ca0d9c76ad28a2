"""Retracting: a prefetched attempt is taken back from a worker where it would wait in vain.

Its worker goes away, its job is paused, or another worker is idle and would be done with it earlier. Nothing of it
has run, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from loopline_master.core import lifecycle
from loopline_master.core.entities import Attempt, Job, Worker
from loopline_master.core.estimates import measure
from loopline_master.core.placement import eligibility
from loopline_master.core.placement.prefetch import Prefetch
from loopline_master.core.state import State

_CLEARLY_S = 0.05
"""A move costs a frame to each of two workers: it has to bring the end so much nearer."""
_LOOK_AT = 4
"""So many workers' queues are looked at for one that is idle, the longest first ..."""
_OFFER_TO = 8
"""... and so many idle workers at each step."""


def relieve(state: State, prefetch: Prefetch, *, unless_ready: bool) -> Iterator[None]:
    """Have idle workers begin attempts that only wait elsewhere. (These come before replicas.)

    Yields after each move: the index must be flushed before the next.
    ``unless_ready``: leave out workers that could start something else, for that is the policy's affair.
    """
    for name in [entry[-1] for entry in state.index.slots.idle.order[:_OFFER_TO]]:
        worker = state.workers[name]
        if unless_ready and _could_start(state, worker):
            continue
        while state.index.slots.free_slots(worker) > 0 and (attempt := _worth_moving(state, prefetch, worker)):
            _move(state, attempt, worker)
            yield


def retract_from(state: State, worker: Worker, reason: str) -> None:
    for attempt_id in list(state.index.attempts.queues.of_worker.get(worker.name, ())):
        lifecycle.retract_attempt(state, state.attempts[attempt_id], reason)


def retract_job(state: State, job: Job, reason: str) -> None:
    for number in list(state.index.ready_sets[job.id].kept):
        for attempt in list(state.index.attempts.of_task.get(job.task_id(number), {}).values()):
            if attempt.is_queued:
                lifecycle.retract_attempt(state, attempt, reason)


def _could_start(state: State, worker: Worker) -> bool:
    """True if some job has a task to start that fits the worker now."""
    keys = state.index.requirements.served_in(state.index.slots.free_slots(worker), worker.name)
    return any(key in state.index.ready for key in keys)


def _move(state: State, attempt: Attempt, worker: Worker) -> None:
    job = state.jobs[attempt.job]
    lifecycle.cancel_attempt(state, attempt, f"worker {worker.name} could begin it earlier")
    lifecycle.start_attempt(state, job, attempt.task, worker)


def _worth_moving(state: State, prefetch: Prefetch, worker: Worker) -> Attempt | None:
    """Return the attempt that would begin last of those that this idle worker would finish clearly earlier."""
    for wait_ms, name in state.index.slots.backlog.order[:_LOOK_AT]:
        donor, queue = state.workers[name], state.index.attempts.queues.of_worker[name]
        last = state.attempts[state.index.attempts.queues.latest_on(name)]
        job = state.jobs[last.job]
        there_s = (
            (-wait_ms - queue[last.id] / max(1, donor.offered)) / 1e3 + _until_free_s(state, donor) + last.expected_s
        )
        is_better = prefetch.expected_s(job, last.task, worker) + _CLEARLY_S < there_s
        may_run = eligibility.fits(state, job, worker) and not state.index.on_worker(last.task_id, worker.name)
        if is_better and may_run and not eligibility.should_go_elsewhere(state, job, last.task, worker):
            return last
    return None


def _until_free_s(state: State, worker: Worker) -> float:
    """Seconds until the first slot of the worker falls free."""
    seated = state.index.attempts.seated_on(worker.name)
    return min((measure.left_of(state.grid, state.jobs[a.job], worker, a) for a in seated), default=0.0)
