"""Sleepers: workers whose computers have said good-bye at least once."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from loopline_shared.protocol.power import Armed, SleepCause, SleepKind, WakeFacts

_LATE_S = 900.0
"""A computer that comes this soon after its first wake was woken by the grid, even if the wake was given up."""
_ASSUMED_S = {SleepKind.SUSPEND: 30.0, SleepKind.OFF: 90.0}
"""Seconds that a computer is assumed to take to wake if it has never been woken."""
_STATES = {SleepKind.SUSPEND: "suspend", SleepKind.OFF: "power-off"}


@dataclass(slots=True)
class Sleeper:
    """The sleep of one worker's computer, as one row."""

    worker: str
    asleep_since: float | None  # None: awake
    kind: SleepKind  # of its present or last sleep
    by: SleepCause
    wake: WakeFacts | None  # as of its last good-bye; None: it has no network card that could wake it
    woken_from: tuple[SleepKind, ...] = ()  # states that it has been woken from
    failed_wakes: int = 0  # in a row
    waking_since: float | None = None  # it is being woken since then, and has not come yet
    last_wake_at: float | None = None  # when the last wake began
    first_wake_at: float | None = None  # when the first wake of its present or last sleep began
    took_s: float = 0.0  # seconds that it took to come after its last wake that succeeded; 0: there was none
    unused_wakes: int = 0  # in a row, for waiting work: no task has run on it since, and its owner has not come
    woken_at: float | None = None  # it came after such a wake, and its owner has not been there since

    @property
    def is_asleep(self) -> bool:
        return self.asleep_since is not None

    @property
    def is_proven(self) -> bool:
        """True if it has been woken from its present state before."""
        return self.kind in self.woken_from

    def is_woken_if_awake(self, now: float) -> bool:
        """True if the grid has woken it, provided that it is awake at ``now``."""
        return self.waking_since is not None or (self.first_wake_at or -inf) + _LATE_S >= now

    def note_success(self, now: float) -> None:
        """Note that it has come because the grid woke it."""
        self.woken_from = tuple(sorted({*self.woken_from, self.kind}))
        self.failed_wakes = 0
        self.woken_at = None if self.by is SleepCause.TEST else now
        if self.waking_since in (None, self.last_wake_at):  # otherwise the master was away
            first_s, last_s = (now - (at or now) for at in (self.first_wake_at, self.last_wake_at))
            self.took_s = first_s if first_s <= _LATE_S else last_s

    @property
    def wake_s(self) -> float:
        """Seconds that it is expected to take to wake, longer after each failure."""
        return (self.took_s or _ASSUMED_S[self.kind]) * (1 + self.failed_wakes)

    @property
    def wake_blocker(self) -> str:
        """The reason why it cannot or must not be woken; empty if it may be tried."""
        if self.wake is None:
            return "it has no network card that could wake it"
        if not self.wake.is_allowed:
            return "its owner does not allow the grid to wake it"
        if self.wake.obstacle:
            return f"it cannot be woken: {self.wake.obstacle}"
        return ""

    @property
    def obstacle(self) -> str:
        """The reason why it cannot be woken, or why that is not known; empty if it can be woken."""
        if self.wake_blocker:
            return self.wake_blocker
        if self.wake is None or not self.wake.can_suspend:
            return "its worker is not permitted to suspend it after the work"
        if self.is_proven:
            return ""
        if self.wake.armed(self.kind) is Armed.NO:
            return "its network card is not armed for Wake-on-LAN"
        return f"it has not been woken from {_STATES[self.kind]} yet, so this may not work"


class Sleepers:
    """All sleepers by worker: memory of the wing."""

    def __init__(self) -> None:
        self.of: dict[str, Sleeper] = {}
        self._asleep: dict[str, Sleeper] = {}
        self._waking: dict[str, Sleeper] = {}

    def note(self, sleeper: Sleeper) -> None:
        """Enter a new or changed sleeper."""
        self.forget(sleeper.worker)
        self.of[sleeper.worker] = sleeper
        if sleeper.is_asleep:
            self._asleep[sleeper.worker] = sleeper
            if sleeper.waking_since is not None:
                self._waking[sleeper.worker] = sleeper

    def forget(self, worker: str) -> bool:
        """Forget a worker; False if it is no sleeper."""
        self._asleep.pop(worker, None)
        self._waking.pop(worker, None)
        return self.of.pop(worker, None) is not None

    @property
    def are_all_awake(self) -> bool:
        return not self._asleep

    @property
    def waking(self) -> list[Sleeper]:
        """The sleepers that are being woken, in alphabetical order."""
        return [self._waking[name] for name in sorted(self._waking)]

    @property
    def tested(self) -> list[Sleeper]:
        """The sleepers that were suspended for a test, may be woken, and have not been woken yet."""
        asleep = [one for one in self._asleep.values() if one.by is SleepCause.TEST and not one.wake_blocker]
        return [one for one in asleep if one.first_wake_at is None]

    @property
    def all_asleep(self) -> list[Sleeper]:
        """The sleepers whose computers sleep now, in alphabetical order."""
        return [self._asleep[name] for name in sorted(self._asleep)]

    def asleep(self, worker: str) -> Sleeper | None:
        """Return the sleeper of a worker whose computer sleeps now; None if it is awake, away or unknown."""
        return self._asleep.get(worker)
