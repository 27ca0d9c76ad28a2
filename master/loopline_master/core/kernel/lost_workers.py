"""Forgetting workers that are not expected back.

A worker that is away is forgotten when an admin says so, or after ``forget_workers_days``. One that said that it is
*transient* is forgotten when its lease is over, or as soon as another worker needs its place. What it had is lost for
good, its tasks are run again, and its results come too late. A computer that comes under this name later is a new
worker.
"""

from __future__ import annotations

from loopline_master.core.events import WorkerForgotten
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs import phases
from loopline_master.core.wings.transfers import carrying
from loopline_shared.model import AttemptState


def forget(state: State, event: WorkerForgotten) -> Reply:
    """Forget a worker, unless it is connected or a gang still needs it."""
    worker = state.workers.get(event.worker)
    if worker is None or event.worker in state.effects.gone:
        message = f"there is no worker {event.worker}"
        return Declined(404, "no_such_worker", message, "loopline workers lists them")
    if worker.session is not None:
        message = f"worker {worker.name} is connected"
        return Declined(409, "connected", message, "stop it first; `loopline leave` there takes it out for good")
    if _is_needed(state, worker):
        return Declined(409, "needed", f"a gang is planned on {worker.name}, or has not ended", "try again later")
    _let_go(state, worker)
    return Done()


def let_transient_go(state: State, worker: Worker) -> None:
    """Forget a transient worker whose lease is over; after another lease, if a gang still needs it."""
    if worker.name in state.effects.gone:
        return
    if _is_needed(state, worker):
        worker.lease_until = state.now + state.settings.lease_s
        state.put(worker)
    else:
        _let_go(state, worker)


def is_full(state: State) -> bool:
    """True if there is no place for another worker. The transient one that is away longest makes room if it can."""
    if len(state.workers) - len(state.effects.gone) < state.settings.max_workers:
        return False
    away = [one for one in state.workers.values() if one.facts.transient and one.session is None]
    able = [one for one in away if one.name not in state.effects.gone and not _is_needed(state, one)]
    if not able:
        return True
    _let_go(state, min(able, key=lambda worker: (worker.lease_until, worker.name)))
    return False


def _is_needed(state: State, worker: Worker) -> bool:
    """True if a plan names the worker, or a gang that has not ended has the result of a member from it."""
    held = state.index.attempts.of_worker.get(worker.name, {}).values()
    if any(attempt.state is AttemptState.FINISHED for attempt in held):
        return True
    return any(worker.name in plan.machines for plan in state.plans.values())


def _let_go(state: State, worker: Worker) -> None:
    """Lose what a worker had for good, and forget it at the end of this step, unless it has joined anew by then."""
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        phases.lose(state, attempt, "its worker was forgotten", for_good=True)
    carrying.forget(state, worker.name)
    worker.lease_until = state.now
    state.effects.gone += (worker.name,)
    state.put(worker)
