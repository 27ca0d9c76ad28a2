"""The owner policy: how many slots tasks may use now, and why no more, by the owner's preferences and what is seen.

Pure: everything that it goes by is an argument. Whatever is not known for certain counts for the owner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

KEEP = 0.5
GROW = 0.25
"""A slot that is there is kept until half of it is missing; a new one comes when no more than a quarter is.

The two differ by more than a smoothed spare CPU swings, so that slots do not come and go with it.
"""


class Policy(StrEnum):
    """When tasks may run."""

    WHEN_IDLE = "when-idle"  # while nobody is at the computer
    SPARE = "spare"  # beside its owner as well, on the cores that its programs leave free
    ALWAYS = "always"  # at the lowest priority, whoever is there


@dataclass(frozen=True, slots=True)
class OwnerPreferences:
    """Preferences that the owner has set."""

    policy: Policy = Policy.WHEN_IDLE
    idle_s: float = 180.0  # without input, before nobody counts as being there
    leave_cores: float = 1.0  # to an owner who is there, beyond what is in use
    leave_memory_bytes: int = 0
    on_battery: bool = False  # tasks run on battery too
    most_share: float = 1.0  # of the cores, at any time: a fan stays quiet
    most_celsius: float | None = None  # of the hottest sensor, above which nothing runs; None: whatever it is
    heed_load: bool = True  # fewer slots while other programs need the processor; SPARE always does

    @property
    def yields_cores(self) -> bool:
        return self.policy is Policy.SPARE or (self.heed_load and self.policy is Policy.WHEN_IDLE)

    @property
    def asks_who_is_there(self) -> bool:
        return self.policy is not Policy.ALWAYS


@dataclass(frozen=True, slots=True)
class Signs:
    """Signs of the owner and of the computer's load, as last read."""

    cores: float
    spare_cpu: float
    idle_s: float | None = None  # since the last input; None: nobody can tell
    wanted_cores: float = (
        0.0  # by other programs, for which tasks make way at once; 0: the processor is not contended
    )
    memory_available_bytes: int = 0
    celsius: float | None = None  # of the hottest sensor; None: no sensor
    on_battery: bool = False
    is_time: bool = True  # within the weekly hours
    program: str = ""  # one that runs and means "not now"
    paused: str = ""  # until when the owner has paused the worker
    network: str = ""  # why no files may come or go; empty if they may


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of the owner policy: slots' worth of tasks that may run, and why no more."""

    slots: int
    why: str = ""
    at_once: bool = False  # what may not run is not coming back soon: no grace
    short_of_memory: bool = False  # nothing new, and less of what there is: freezing would not help
    nothing_new: bool = False  # what runs goes on


_TOO_LITTLE_MEMORY = "too little memory would be left to the owner"
_UNKNOWN = "nobody can tell whether somebody is using this computer (`loopline doctor` says why)"


def is_there(preferences: OwnerPreferences, signs: Signs) -> bool:
    """True if somebody uses the computer, as far as these preferences ask."""
    return preferences.asks_who_is_there and (signs.idle_s or 0.0) < preferences.idle_s


def decide(preferences: OwnerPreferences, signs: Signs, most: int, before: int) -> Decision:
    """Decide how many of ``most`` slots may be used, after ``before`` until now."""
    decision = _slots_for(preferences, signs, most, before)
    if signs.network and decision.slots:  # a task without its files, or whose results stay here, helps nobody
        return replace(decision, why=decision.why or signs.network, nothing_new=True)
    return decision


def _slots_for(preferences: OwnerPreferences, signs: Signs, most: int, before: int) -> Decision:
    if signs.paused:
        return Decision(0, f"paused by the owner {signs.paused}", at_once=True)
    if preferences.most_share < 1:
        most = min(most, math.floor(preferences.most_share * signs.cores / cores_per_slot(signs.cores, most)))
        if most < 1:
            return Decision(0, "less than one core may be used")
    if obstacle := _obstacle(preferences, signs):
        short = preferences.policy is not Policy.ALWAYS and _is_short_of_memory(preferences, signs)
        return Decision(0, f"{obstacle}, and {_TOO_LITTLE_MEMORY}" if short else obstacle, short_of_memory=short)
    if preferences.policy is Policy.ALWAYS:
        return Decision(most)
    return _beside_the_owner(preferences, signs, most, before)


def _obstacle(preferences: OwnerPreferences, signs: Signs) -> str:
    if signs.program:
        return f"{signs.program} is running"
    if not signs.is_time:
        return "outside the hours that the owner has set"
    if signs.on_battery and not preferences.on_battery:
        return "running on battery"
    if _is_hot(preferences, signs):
        return "the computer is hot"
    if preferences.policy is Policy.WHEN_IDLE and is_there(preferences, signs):
        return "somebody is using this computer" if signs.idle_s is not None else _UNKNOWN
    return ""


def _is_hot(preferences: OwnerPreferences, signs: Signs) -> bool:
    return preferences.most_celsius is not None and (signs.celsius or 0.0) > preferences.most_celsius


def _beside_the_owner(preferences: OwnerPreferences, signs: Signs, most: int, before: int) -> Decision:
    slots = most
    if preferences.yields_cores:
        left = preferences.leave_cores if is_there(preferences, signs) else 0.0
        spare_cpu = min(signs.spare_cpu, signs.cores - signs.wanted_cores)
        slots = fit(before, spare_cpu - left, most, cores_per_slot(signs.cores, most))
    if _is_short_of_memory(preferences, signs):
        return Decision(slots, _TOO_LITTLE_MEMORY, short_of_memory=True)
    return Decision(slots, "the owner's programs need the processor" if slots < most else "")


def _is_short_of_memory(preferences: OwnerPreferences, signs: Signs) -> bool:
    return signs.memory_available_bytes < preferences.leave_memory_bytes


def fit(slots: int, spare_cpu: float, most: int, cores_per_slot: float = 1.0) -> int:
    """Return the spare-core limit: slots to offer from now on, at most ``most``, after ``slots`` until now."""
    room = max(0.0, spare_cpu) / cores_per_slot
    kept, reached = math.floor(room + KEEP), math.floor(room + GROW)
    return min(most, max(min(slots, kept), reached))


def cores_per_slot(cores: float, most: int) -> float:
    """Return 1, or less if the computer was told to offer more slots than it has cores."""
    return min(1.0, cores / most)
