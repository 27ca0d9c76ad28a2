"""Explanations of computers that sleep: of workers, and of attempts that sleep with them."""

from __future__ import annotations

from collections.abc import Iterable

from loopline_master.core.explain.phrases import spoken
from loopline_master.core.kernel.entities import Attempt, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.power.sleeper import Sleepers
from loopline_master.core.wings.power.wake_rules import lasting_reason, passing_reason
from loopline_shared.model import AttemptState
from loopline_shared.protocol.power import SleepCause, SleepKind
from loopline_shared.rest.bodies import Reason

_MOST_NAMED = 3
_CAUSES = {
    SleepCause.OWNER: "by its owner",
    SleepCause.IDLE: "because nobody used it",
    SleepCause.GRID: "after its work for the grid",
    SleepCause.TEST: "to test whether it can be woken",
}
_KINDS = {SleepKind.SUSPEND: "suspended", SleepKind.OFF: "switched off"}


def why_asleep(state: State, worker: Worker) -> Reason | None:
    """Return the reason that a worker is away if its computer sleeps; None otherwise."""
    sleeper = state.own(Sleepers).asleep(worker.name)
    if sleeper is None or sleeper.asleep_since is None:
        return None
    detail = f"it has been asleep for {spoken(state.now - sleeper.asleep_since)}, {_KINDS[sleeper.kind]} "
    detail += f"{_CAUSES[sleeper.by]}; " + (sleeper.obstacle or "the grid can wake it")
    if sleeper.waking_since is not None:
        detail += f"; the grid has been trying to wake it for {spoken(state.now - sleeper.waking_since)}"
    if sleeper.failed_wakes:
        detail += (
            "; the last " + ("wake" if sleeper.failed_wakes == 1 else f"{sleeper.failed_wakes} wakes") + " failed"
        )
    reason = lasting_reason(state, sleeper) or passing_reason(state, sleeper)
    if reason and reason != sleeper.obstacle:
        detail += f"; it is not woken for waiting tasks: {reason}"
    return Reason(code="asleep", count=0, detail=detail)


def frozen_note(state: State, attempt: Attempt) -> str:
    """Return why an attempt is frozen, in parentheses; empty if it is not."""
    if attempt.state is not AttemptState.FROZEN:
        return ""
    is_asleep = state.own(Sleepers).asleep(attempt.worker) is not None
    return " (frozen: its computer is asleep)" if is_asleep else " (frozen: its owner is there)"


def sleepers_among(state: State, workers: Iterable[Worker]) -> str:
    """Return the sleeping ones of these workers, in parentheses; empty without any."""
    names = sorted(worker.name for worker in workers if state.own(Sleepers).asleep(worker.name))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    waking = sum(name in names for name in (one.worker for one in state.own(Sleepers).waking))
    more += f"; {waking} of them being woken" if waking else ""
    return f" (asleep: {', '.join(names[:_MOST_NAMED])}{more})" if names else ""
