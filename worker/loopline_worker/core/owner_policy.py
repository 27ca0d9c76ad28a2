"""The owner policy: how many slots tasks may use now, and why no more, by the owner's preferences and a reading.

Pure: all its input is in the arguments. Anything uncertain is decided in the owner's favour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

KEEP = 0.5
GROW = 0.25
"""A slot in use is kept until half of a core is missing; a new one is added when at most a quarter is missing.

The two differ by more than the fluctuation of the smoothed spare CPU, so the number of slots does not oscillate.
"""


class Policy(StrEnum):
    """When tasks may run."""

    WHEN_IDLE = "when-idle"  # only while the owner is away
    SPARE = "spare"  # also while the owner is present, on the cores that other programs leave free
    ALWAYS = "always"  # at any time, at the lowest priority


@dataclass(frozen=True, slots=True)
class OwnerPreferences:
    """Preferences of the owner."""

    policy: Policy = Policy.WHEN_IDLE
    idle_s: float = 180.0  # without input, after which the owner counts as away
    reserve_cores: float = 1.0  # kept free while the owner is present, beyond the cores in use
    reserve_memory_bytes: int = 0
    on_battery: bool = False  # tasks run on battery too
    max_share: float = 1.0  # of the cores, at any time, such as to keep a fan quiet
    max_temperature_c: float | None = None  # nothing runs while the hottest sensor is above; None: no limit
    yield_to_load: bool = True  # fewer slots while other programs need the processor; always true under SPARE

    @property
    def yields_cores(self) -> bool:
        return self.policy is Policy.SPARE or (self.yield_to_load and self.policy is Policy.WHEN_IDLE)

    @property
    def needs_presence(self) -> bool:
        return self.policy is not Policy.ALWAYS


@dataclass(frozen=True, slots=True)
class Signs:
    """Signs of the owner and of the computer's load, as last read."""

    cores: float
    spare_cpu: float
    taken_cores: float = 0.0  # since the worker started
    idle_s: float | None = None  # since the last input; None: unknown
    wanted_cores: float = 0.0  # cores that other programs need at once; 0: the processor is not contended
    memory_available_bytes: int = 0
    celsius: float | None = None  # of the hottest sensor; None: no sensor
    on_battery: bool = False
    is_time: bool = True  # within the weekly hours
    program: str = ""  # a running program that the owner listed as a reason to pause
    switched_off: str = ""  # the path and first line of the file `off_file`; empty: it is absent
    paused: str = ""  # until when the owner has paused the worker
    network: str = ""  # why no files may come or go; empty if they may


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of the owner policy: slots' worth of tasks that may run, and why no more."""

    slots: int
    why: str = ""
    at_once: bool = False  # preempt without a grace time: slots will not come back soon
    short_of_memory: bool = False  # start nothing and preempt some attempts: freezing would not free memory
    nothing_new: bool = False  # start nothing; running attempts continue


_TOO_LITTLE_MEMORY = "too little memory would be left to the owner"
_UNKNOWN = "it is unknown whether somebody is using this computer (`loopline doctor` says why)"


def is_present(preferences: OwnerPreferences, signs: Signs) -> bool:
    """True if the owner uses the computer, or presence is unknown; False if the policy does not depend on it."""
    return preferences.needs_presence and (signs.idle_s or 0.0) < preferences.idle_s


def decide(preferences: OwnerPreferences, signs: Signs, most: int, before: int) -> Decision:
    """Decide how many of ``most`` slots may be used; ``before``: slots allowed until now."""
    decision = _slots_for(preferences, signs, (left := _left_of(most, signs)), before)
    if left < most and not decision.why:
        had = signs.cores + signs.taken_cores
        decision = replace(decision, why=f"this worker may use only {signs.cores:g} of its {had:g} cores now")
    if signs.network and decision.slots:  # a task could not fetch its files or deliver its results
        return replace(decision, why=decision.why or signs.network, nothing_new=True)
    return decision


def _left_of(most: int, signs: Signs) -> int:
    """Return how many slots still have cores, at least one."""
    had = signs.cores + signs.taken_cores
    return min(most, max(1, math.floor(most * signs.cores / had))) if signs.taken_cores else most


def _slots_for(preferences: OwnerPreferences, signs: Signs, most: int, before: int) -> Decision:
    if signs.switched_off:
        return Decision(0, f"switched off by {signs.switched_off}", at_once=True)
    if signs.paused:
        return Decision(0, f"paused by the owner {signs.paused}", at_once=True)
    if preferences.max_share < 1:
        most = min(most, math.floor(preferences.max_share * signs.cores / cores_per_slot(signs.cores, most)))
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
    if preferences.policy is Policy.WHEN_IDLE and is_present(preferences, signs):
        return "somebody is using this computer" if signs.idle_s is not None else _UNKNOWN
    return ""


def _is_hot(preferences: OwnerPreferences, signs: Signs) -> bool:
    return preferences.max_temperature_c is not None and (signs.celsius or 0.0) > preferences.max_temperature_c


def _beside_the_owner(preferences: OwnerPreferences, signs: Signs, most: int, before: int) -> Decision:
    slots = most
    if preferences.yields_cores:
        left = preferences.reserve_cores if is_present(preferences, signs) else 0.0
        spare_cpu = min(signs.spare_cpu, signs.cores - signs.wanted_cores)
        slots = fit(before, spare_cpu - left, most, cores_per_slot(signs.cores, most))
    if _is_short_of_memory(preferences, signs):
        return Decision(slots, _TOO_LITTLE_MEMORY, short_of_memory=True)
    return Decision(slots, "the owner's programs need the processor" if slots < most else "")


def _is_short_of_memory(preferences: OwnerPreferences, signs: Signs) -> bool:
    return signs.memory_available_bytes < preferences.reserve_memory_bytes


def fit(slots: int, spare_cpu: float, most: int, cores_per_slot: float = 1.0) -> int:
    """Return the slots to offer from now on by spare CPU, at most ``most``; ``slots``: offered until now."""
    room = max(0.0, spare_cpu) / cores_per_slot
    kept, reached = math.floor(room + KEEP), math.floor(room + GROW)
    return min(most, max(min(slots, kept), reached))


def cores_per_slot(cores: float, most: int) -> float:
    """Return the cores of one slot: 1, or less if the computer offers more slots than it has cores."""
    return min(1.0, cores / most)
