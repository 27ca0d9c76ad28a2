"""Explanations of a worker's activity, or of its free slots: one sentence for people, reasons for programs."""

from __future__ import annotations

from collections import Counter

from loopline_master.core.explain.explain_sleep import why_asleep
from loopline_master.core.explain.explain_transfers import explain_transfers
from loopline_master.core.explain.phrases import counted
from loopline_master.core.kernel.entities import OCCUPYING, Attempt, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.scheduler import Scheduler
from loopline_shared.model import AttemptState
from loopline_shared.rest.bodies import Explanation, Reason

_MOST_NAMED = 5


def explain_worker(scheduler: Scheduler, name: str) -> Explanation | None:
    """Explain a worker; None if there is no such worker."""
    state = scheduler.state
    worker = state.workers.get(name)
    if worker is None:
        return None
    reasons = _reasons(state, worker)
    sentence = "; ".join(reason.detail for reason in reasons)
    return Explanation(subject=name, state=_state(state, worker), sentence=sentence, reasons=reasons)


def _state(state: State, worker: Worker) -> str:
    if worker.session is None:
        return "asleep" if why_asleep(state, worker) else "away"
    return "draining" if worker.draining else "connected"


def _reasons(state: State, worker: Worker) -> list[Reason]:
    """Return the reasons, the most important first."""
    reasons = [_presence(state, worker)] if worker.session is None or worker.draining else []
    reasons += _running(state, worker)
    reasons += explain_transfers(state, worker.name)[:_MOST_NAMED]
    if worker.is_available:
        reasons += _ending(state, worker)
        reasons += _withheld(worker)
        if state.index.slots.free_slots(worker) > 0:
            reasons.append(_idle(state, worker))
    if worker.mismatches:
        detail = f"{counted(worker.mismatches, 'result')} of its contradict another worker's"
        reasons.append(Reason(code="mismatches", count=worker.mismatches, detail=detail))
    if worker.overstated:
        times = counted(worker.overstated, "time")
        detail = f"it reported impossible times, memory, speed or cores ({times}): check its clock and its benchmark"
        reasons.append(Reason(code="overstated", count=worker.overstated, detail=detail))
    return reasons or [Reason(code="busy", count=0, detail="it has not reported yet")]


def _presence(state: State, worker: Worker) -> Reason:
    if worker.session is not None:
        why = f" ({worker.drain_reason})" if worker.drain_reason else ""
        detail = f"it is draining{why}: it finishes what it has, and is given no more"
        return Reason(code="draining", count=0, detail=detail)
    if asleep := why_asleep(state, worker):
        return asleep
    held = len(_attempts(state, worker))
    still = f"; {counted(held, 'attempt')} there may still continue, until its lease ends" if held else ""
    return Reason(code="away", count=held, detail=f"it is not connected{still}")


def _running(state: State, worker: Worker) -> list[Reason]:
    all_there = _attempts(state, worker)
    attempts = [attempt for attempt in all_there if attempt.state is not AttemptState.DELIVERING]
    delivering = len(all_there) - len(attempts)
    by_job = Counter(attempt.job for attempt in attempts)
    jobs = ", ".join(f"{count} of job {job}" for job, count in by_job.most_common(_MOST_NAMED))
    more = f" and {len(by_job) - _MOST_NAMED} more jobs" if len(by_job) > _MOST_NAMED else ""
    used, frozen = state.index.attempts.used.get(worker.name, 0), sum(attempt.stands_still for attempt in attempts)
    reasons = []
    if attempts:
        place = f" on {used} of {worker.offered} slots" if worker.session is not None else ""
        detail = f"{counted(len(attempts), 'attempt')}{place}: {jobs}{more}"
        only = next(iter(by_job)) if len(by_job) == 1 else None
        reasons.append(Reason(code="running", count=len(attempts), detail=detail, job=only))
    if frozen:
        why = "its computer is asleep" if why_asleep(state, worker) else "its owner is there"
        detail = f"{frozen} of them frozen: {why}"
        reasons.append(Reason(code="frozen", count=frozen, detail=detail))
    if delivering:
        detail = f"delivering {counted(delivering, 'result')} to the master"
        reasons.append(Reason(code="delivering", count=delivering, detail=detail))
    return reasons


def _ending(state: State, worker: Worker) -> list[Reason]:
    """Return the reason that a worker must end soon: it is given no task that would take longer."""
    until = worker.facts.until
    if until is None:
        return []
    left_s = max(0, round(until - state.now))
    detail = f"it has to end in {left_s:,} s, and gets no task that is expected to take longer"
    return [Reason(code="ending", count=left_s, detail=detail)]


def _withheld(worker: Worker) -> list[Reason]:
    kept = worker.facts.slots - worker.offered
    if worker.load is None or kept <= 0:
        return []
    why = worker.load.withheld or "its owner has the use of them"
    return [
        Reason(
            code="withheld", count=kept, detail=f"{counted(kept, 'slot')} of {worker.facts.slots} kept back: {why}"
        )
    ]


def _idle(state: State, worker: Worker) -> Reason:
    """Return the reason why slots of the worker are free."""
    free = state.index.slots.free_slots(worker)
    idle = f"{counted(free, 'slot')} free: "
    waiting = {key: len(arrivals) for key, arrivals in state.index.ready.items()}
    fitting = sum(
        count for key, count in waiting.items() if worker.name in state.index.requirements.workers.get(key, ())
    )
    if not waiting:
        held = len(state.index.blockers)
        what = (
            f"nothing waits but the held tasks of {counted(held, 'job')}" if held else "no task waits to be started"
        )
        return Reason(code="idle", count=free, detail=idle + what)
    if not fitting:
        detail = f"{idle}jobs wait ({sum(waiting.values())}), but it meets the requirements of none"
        return Reason(code="unfit", count=free, detail=detail)
    detail = f"{idle}{counted(fitting, 'job')} it could run wait, but need more slots, or another worker"
    return Reason(code="policy", count=free, detail=f"{detail} (policy {state.settings.policy})")


def _attempts(state: State, worker: Worker) -> list[Attempt]:
    attempts = state.index.attempts.of_worker.get(worker.name, {}).values()
    return [one for one in attempts if one.state in (*OCCUPYING, AttemptState.LOST)]
