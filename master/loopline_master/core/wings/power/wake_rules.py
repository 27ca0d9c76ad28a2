"""Wake rules: the reasons why a sleeping computer is not woken for waiting work."""

from __future__ import annotations

from loopline_master.core.kernel.state import State
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_shared.protocol.power import Armed, SleepCause

MAX_FAILED_WAKES = 3
_LEFT_ALONE_S = 600.0
"""A computer that its owner has put to sleep is not woken for this long."""
_UNUSED_PAUSE_S = 600.0


def lasting_reason(state: State, sleeper: Sleeper) -> str:
    """Return the reason that keeps it asleep until a person or a task changes that; empty if there is none."""
    facts, worker = sleeper.wake, state.workers[sleeper.worker]
    if facts is None or sleeper.wake_blocker:
        return sleeper.wake_blocker
    if not facts.can_suspend or not (sleeper.is_proven or facts.armed(sleeper.kind) is Armed.YES):
        return sleeper.obstacle
    if sleeper.failed_wakes >= MAX_FAILED_WAKES:
        return f"it did not come after {sleeper.failed_wakes} wakes: try `loopline wake {worker.name}`"
    if sleeper.unused_wakes >= MAX_FAILED_WAKES:
        return f"it got no task after {sleeper.unused_wakes} wakes: try `loopline wake {worker.name}`"
    if worker.draining:
        return "it is draining"
    return "it is in quarantine" if worker.quarantined_until is not None else ""


def passing_reason(state: State, sleeper: Sleeper) -> str:
    """Return the reason why it is not woken for some time; empty if it may be woken now."""
    now, facts, asleep_since = state.now, sleeper.wake, sleeper.asleep_since or 0.0
    if sleeper.by is SleepCause.TEST:
        return "it is being tested"
    if sleeper.by is SleepCause.OWNER and now < asleep_since + _LEFT_ALONE_S:
        return f"its owner put it to sleep less than {_LEFT_ALONE_S / 60:g} minutes ago"
    if sleeper.unused_wakes and asleep_since > (sleeper.last_wake_at or 0.0):
        pause_s = _UNUSED_PAUSE_S * 2 ** (sleeper.unused_wakes - 1)
        if now < asleep_since + pause_s:
            return f"it got no task after its last wake, less than {pause_s / 60:g} minutes ago"
    if facts is None:
        return ""
    if now < facts.not_before:
        return "its owner has paused tasks"
    if not facts.allow_tasks(now):
        return "its owner allows no tasks at this hour"
    ends_at = now + sleeper.wake_s + state.settings.sleep_after_s
    return "" if facts.allow_tasks(ends_at) else "its owner's hours end before it could sleep again"
