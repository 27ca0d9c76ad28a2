"""Which gangs begin now, and which workers are kept for the one that waits first.

A gang begins only where there are workers for all of its members at once, so that no two wait for each other
half-started. The first one in order of arrival that does not find them keeps the slots of as many workers as it
needs, as they fall free, and nothing else is started there: so nothing starves it. Later gangs may begin on what is
left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from loopline_master.core import eligibility
from loopline_master.core.entities import Job, Worker
from loopline_master.core.gangs import launch
from loopline_master.core.gangs.gang import Gang
from loopline_master.core.state import State

_LOOK_AT = 16
"""So many jobs of gangs that wait are looked at in one step."""


def place(state: State) -> Iterator[None]:
    """Begin the gangs for which there are workers, then reserve for the first of the others.

    Yields whenever the index must be flushed before the next change.
    """
    first: tuple[Job, int] | None = None
    for arrival in list(islice(state.index.parallel, _LOOK_AT)):
        job = state.index.live[arrival]
        while arrival in state.index.parallel and (number := _next_task(state, job)) is not None:
            kept = _reserving(state) if first is None else None
            workers = _free_workers(state, job, number, kept.workers if kept else ())
            if len(workers) < job.nodes:
                first = first or (job, number)
                break
            launch.begin(state, job, number, workers)
            yield
    if first is not None or state.index.gangs.reserved:
        _reserve(state, first)
        yield


def _next_task(state: State, job: Job) -> int | None:
    """Return the job's first task that waits to be started again, else its first fresh one; the hold is looked at."""
    again = state.index.ready_sets[job.id].to_retry.first_after(0)
    if again is not None:
        return again
    return None if state.index.is_held(job) else state.fresh[job.id].first_after(0)


def _reserving(state: State) -> Gang | None:
    """Return the gang for which slots are kept: there is at most one."""
    return next((state.gangs[task] for task in state.index.gangs.reserving), None)


def _free_workers(state: State, job: Job, number: int, kept: tuple[str, ...]) -> list[Worker]:
    """Return workers that could begin now, as many as the gang needs if there are so many."""
    idle = (entry[-1] for entry in state.index.slots.idle.order)
    found: list[Worker] = []
    for name in dict.fromkeys((*kept, *idle)):
        worker = state.workers[name]
        free = worker.offered - state.index.attempts.in_hand(name)
        if name not in kept:
            free = state.index.slots.free_slots(worker)
        if free >= job.slots and _may_have(state, job, number, worker):
            found.append(worker)
            if len(found) == job.nodes:
                break
    return found


def _may_have(state: State, job: Job, number: int, worker: Worker) -> bool:
    """True if the worker could have a member once it has the slots."""
    if not worker.is_available or not state.index.requirements.fits(job, worker) or worker.offered < job.slots:
        return False
    if worker.on_trial and state.index.attempts.in_hand(worker.name):
        return False
    if state.index.on_worker(job.task_id(number), worker.name):
        return False
    return not eligibility.should_go_elsewhere(state, job, number, worker)


def _reserve(state: State, first: tuple[Job, int] | None) -> None:
    """Keep workers for this gang and for no other: those kept already, then those with least in hand."""
    before = _reserving(state)
    wanted = None if first is None else _reservation(state, *first, before)
    if before is not None and (wanted is None or wanted.id != before.id):
        state.drop_gang(before)
    if wanted is not None and (before is None or (wanted.id, wanted.workers) != (before.id, before.workers)):
        state.put(wanted)


def _reservation(state: State, job: Job, number: int, before: Gang | None) -> Gang | None:
    """Return what is to be kept; None if too few workers could ever have the gang as they are."""
    kept = before.workers if before is not None and before.job == job.id else ()
    names = list(_able(state, job, number, kept))
    if len(names) < job.nodes:
        attempts, serving = state.index.attempts, state.index.requirements.serving(job)
        others = sorted(serving, key=lambda name: (attempts.in_hand(name), name))
        names = list(islice(_able(state, job, number, (*names, *others)), job.nodes))
    if len(names) < job.nodes:
        return None
    return Gang(job.id, number, tuple(names), job.slots, state.now)


def _able(state: State, job: Job, number: int, names: Iterable[str]) -> Iterator[str]:
    return (name for name in dict.fromkeys(names) if _may_have(state, job, number, state.workers[name]))
