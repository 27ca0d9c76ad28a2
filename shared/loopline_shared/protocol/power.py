"""The parts of the worker link that are about computers that sleep and are woken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from loopline_shared.model import Name, Seconds
from loopline_shared.protocol.host_link import Address

MAX_TARGETS = 64
MAX_SPANS = 100
HardwareAddress = Annotated[str, Field(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]
_WEEK_MIN, _THURSDAY_MIN = 7 * 24 * 60, 3 * 24 * 60  # 1970 began on a Thursday
WeekMinute = Annotated[int, Field(ge=0, le=2 * _WEEK_MIN)]
ClockChange = Annotated[int, Field(ge=-24 * 60, le=24 * 60)]
SuspendKind = Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9]*$")]
WeekSpan = tuple[WeekMinute, WeekMinute]
"""Start and end, in minutes since Monday 00:00 UTC; it may run into the next week."""
Interface = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f/]+$")]
Obstacle = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class SleepKind(StrEnum):
    """A power state that a computer can be woken from."""

    SUSPEND = "suspend"  # or hibernation: logind announces both alike
    OFF = "off"


class SleepCause(StrEnum):
    """The reason why a computer sleeps."""

    OWNER = "owner"  # by hand: a person was using it
    IDLE = "idle"  # by its own settings, after a time without input
    GRID = "grid"  # by its worker, after the work that it was woken for
    TEST = "test"  # by its worker, to find out whether it can be woken


class Armed(StrEnum):
    """Setting of a network card: does a magic packet wake the computer?"""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WakeFacts:
    """A computer's network card, and the conditions for waking it."""

    interface: Interface  # name of the network card, such as enp3s0
    hardware_address: HardwareAddress  # of the network card
    subnet: Address = ""  # such as 10.1.2.0/24; empty: unknown
    is_wired: bool = True  # false: Wi-Fi
    from_suspend: Armed = Armed.UNKNOWN  # does a magic packet wake it from suspend?
    from_off: Armed = Armed.UNKNOWN  # ... and from power-off?
    mem_sleep: SuspendKind = ""  # of the kernel: s2idle, shallow or deep; empty: unknown
    is_allowed: bool = True  # by the owner
    can_suspend: bool = False  # the worker may suspend its computer, so that it is not left awake
    obstacle: Obstacle = ""  # why waking cannot work now, such as a closed lid; empty: nothing is known
    hours: Annotated[tuple[WeekSpan, ...], Field(max_length=MAX_SPANS)] = ()  # when tasks are allowed; (): always
    hours_change_at: Seconds = 0.0  # since 1970: clocks change then; 0: they do not within half a year
    hours_change_min: ClockChange = 0  # from then on the hours begin this many minutes earlier in UTC
    not_before: Seconds = 0.0  # since 1970: the owner has paused tasks until then

    def armed(self, kind: SleepKind) -> Armed:
        """Return whether the card wakes the computer from this state."""
        return self.from_suspend if kind is SleepKind.SUSPEND else self.from_off

    def allow_tasks(self, at: float) -> bool:
        """True if the owner allows tasks at this time (seconds since 1970), as far as that is known."""
        has_changed = 0.0 < self.hours_change_at <= at
        minute = (int(at // 60) + _THURSDAY_MIN + has_changed * self.hours_change_min) % _WEEK_MIN
        is_within = any(start <= minute < end or start <= minute + _WEEK_MIN < end for start, end in self.hours)
        return at >= self.not_before and (is_within or not self.hours)


@dataclass(frozen=True, slots=True)
class GoodBye:
    """A part of a worker's last Report before its computer sleeps."""

    kind: SleepKind
    by: SleepCause
    wake: WakeFacts | None = None  # None: it has no network card that could wake it


@dataclass(frozen=True, slots=True)
class WakeTarget:
    """A worker of this grid that the receiver wakes by magic packets."""

    worker: Name
    hardware_address: HardwareAddress
    subnet: Address


@dataclass(frozen=True, slots=True)
class PowerOrders:
    """A part of an Assign."""

    wake: Annotated[tuple[WakeTarget, ...], Field(max_length=MAX_TARGETS)] = ()
    test_alarm_s: Seconds | None = None
    """Suspend this computer now, with an alarm of its clock after this time; None: do not."""
    sleep_after_s: Seconds | None = None
    """The grid woke this computer: suspend it when it has had no task for this long; None: leave it awake."""
