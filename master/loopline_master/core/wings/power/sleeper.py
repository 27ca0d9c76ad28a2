"""Sleepers: workers whose computers have said good-bye at least once."""

from __future__ import annotations

from dataclasses import dataclass

from loopline_shared.protocol.power import Armed, SleepCause, SleepKind, WakeFacts

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
    waking_since: float | None = None  # the last magic packets were sent then, and it has not come yet
    woken_at: float | None = None  # it came after such a wake, and its owner has not been there since

    @property
    def is_asleep(self) -> bool:
        return self.asleep_since is not None

    @property
    def is_proven(self) -> bool:
        """True if it has been woken from its present state before."""
        return self.kind in self.woken_from

    @property
    def obstacle(self) -> str:
        """The reason why it cannot be woken, or why that is not known; empty if it can be woken."""
        if self.wake is None:
            return "it has no network card that could wake it"
        if not self.wake.is_allowed:
            return "its owner does not allow the grid to wake it"
        if self.wake.obstacle:
            return f"it cannot be woken: {self.wake.obstacle}"
        if self.wake.armed(self.kind) is Armed.NO:
            return "its network card is not armed for Wake-on-LAN"
        if not self.wake.can_suspend:
            return "its worker is not permitted to suspend it after the work"
        return "" if self.is_proven else f"it has not been woken from {_STATES[self.kind]} yet, so this may not work"


class Sleepers:
    """All sleepers by worker: memory of the wing."""

    def __init__(self) -> None:
        self.of: dict[str, Sleeper] = {}

    def asleep(self, worker: str) -> Sleeper | None:
        """Return the sleeper of a worker whose computer sleeps now; None if it is awake, away or unknown."""
        sleeper = self.of.get(worker)
        return sleeper if sleeper and sleeper.is_asleep else None
