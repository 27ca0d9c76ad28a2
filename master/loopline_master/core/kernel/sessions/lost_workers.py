"""Forgetting workers that are not expected back.

An absent worker is forgotten on an admin's request, or after ``forget_workers_days``. A *transient* worker is
forgotten when its lease is over, or as soon as another worker needs its place. Its attempts are lost for good, their
tasks run again, and its results come too late. A computer that joins under this name later is a new worker.
"""

from __future__ import annotations

from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptState


def is_full(state: State) -> bool:
    """True if there is no place for another worker. The longest absent transient worker makes room if it can."""
    if len(state.workers) - len(state.effects.gone) < state.settings.max_workers:
        return False
    away = [one for one in state.workers.values() if one.facts.transient and one.session is None]
    able = [one for one in away if one.name not in state.effects.gone and not is_needed(state, one)]
    if not able:
        return True
    forget_worker(state, min(able, key=lambda worker: (worker.lease_until, worker.name)))
    return False


def is_needed(state: State, worker: Worker) -> bool:
    """True if a wing needs the worker, or a result from it waits for those of others."""
    held = state.index.attempts.of_worker.get(worker.name, {}).values()
    if any(attempt.state is AttemptState.FINISHED for attempt in held):
        return True
    return any(needs(worker) for needs in state.wings.needs)


def forget_worker(state: State, worker: Worker) -> None:
    """Lose a worker's attempts for good, and forget it at the end of the step, unless it has joined again by then."""
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        lifecycle.lose(state, attempt, "its worker was forgotten", for_good=True)
    for forget in state.wings.worker_left:
        forget(worker.name)
    worker.lease_until = state.now
    state.effects.gone += (worker.name,)
    state.put(worker)
