"""Which sleeping computers are woken: a function of the waiting work and of the time when each computer can begin it.

1. A task that an awake computer would begin no later than a sleeping one could is left to the awake one.
2. A computer that is being woken is given the tasks that it begins within its wake time, counted from its start. So
   a computer is started for a long task, or for many short ones, but not for a few that end sooner than it starts.
3. Otherwise the sleeping computer is woken that would finish one task soonest, unless as many of its subnet have been
   woken within the last minute as the operator allows.
4. A task on several computers wakes the missing ones, if enough computers sleep. An awake computer is not missing if
   it can begin the task by the time when the sleeping ones have come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_MOST_GANGS = 20
"""A plan wakes computers for at most this many tasks of one job that runs each task on several computers."""
_LEAST_S = 1e-3
"""Shortest run time that is assumed for a task."""


@dataclass(slots=True)
class ComputerSlots:
    """A computer and the seconds from now until each of its slots is free."""

    name: str
    speed: float  # reference CPU-seconds that a slot delivers in a second
    free_in_s: list[float]
    wake_s: float = 0.0  # seconds that it takes to wake, if it sleeps or is being woken
    subnet: str = ""
    takes_within_s: float = field(init=False)
    """If it is woken, it is given the tasks that it begins within this many seconds from now."""

    def __post_init__(self) -> None:
        self.takes_within_s = min(self.free_in_s, default=0.0) + self.wake_s

    def reserve(self, tasks: int, slots: int, task_s: float, within_s: float) -> int:
        """Reserve slots for up to ``tasks`` tasks that begin within ``within_s`` from now; return their number."""
        self.free_in_s.sort()
        taken = 0
        for first in range(0, len(self.free_in_s) - slots + 1, slots):
            begin_s = self.free_in_s[first + slots - 1]
            if taken == tasks or begin_s > within_s:
                break
            count = min(tasks - taken, int((within_s - begin_s) / task_s) + 1)
            self.free_in_s[first : first + slots] = [begin_s + count * task_s] * slots
            taken += count
        return taken


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """Tasks of one job that could start now if a suitable computer had free slots for them."""

    tasks: int
    slots_on: Callable[[str], int]  # slots that a task takes on the computer of this name; 0: it may not run there
    work: float  # of one task, in reference CPU-seconds
    nodes: int = 1  # computers that each task needs at once

    def suits(self, computer: ComputerSlots) -> bool:
        """True if a task may run there once enough slots are free."""
        return 0 < self.slots_on(computer.name) <= len(computer.free_in_s)

    def begins_s(self, computer: ComputerSlots) -> float:
        """Return the seconds from now until a task could begin there."""
        return sorted(computer.free_in_s)[self.slots_on(computer.name) - 1]

    def reserve(self, tasks: int, computer: ComputerSlots, within_s: float) -> int:
        """Reserve slots there for up to ``tasks`` tasks that begin within this time; return their number."""
        return computer.reserve(tasks, self.slots_on(computer.name), self.seconds_on(computer), within_s)

    def seconds_on(self, computer: ComputerSlots) -> float:
        """Return the expected run time of one task there."""
        return max(_LEAST_S, self.work / computer.speed)


def computers_to_wake(
    waiting: Iterable[WaitingWork],
    awake: Sequence[ComputerSlots],
    waking: Sequence[ComputerSlots],
    asleep: Sequence[ComputerSlots],
    allowed: Mapping[str, int],
) -> list[str]:
    """Return the names of the computers to wake now, the most useful first.

    ``waking``: computers that are being woken, with the seconds that each still needs. ``allowed``: the number of
    computers that may be woken now, by subnet. Slots of the computers are reserved by the call.
    """
    chosen: list[str] = []
    left_in = Counter(allowed)
    sleeping, coming = {computer.name: computer for computer in asleep}, [*waking]
    for work in waiting:
        if not any(left_in[computer.subnet] > 0 for computer in sleeping.values()):
            break
        for computer in _wake_for(work, awake, coming, sleeping.values(), left_in):
            left_in[computer.subnet] -= 1
            chosen.append(computer.name)
            coming.append(sleeping.pop(computer.name))
    return chosen


def _wake_for(
    work: WaitingWork,
    awake: Iterable[ComputerSlots],
    coming: Iterable[ComputerSlots],
    sleeping: Iterable[ComputerSlots],
    allowed: Mapping[str, int],
) -> list[ComputerSlots]:
    """Return the sleeping computers that one job needs, in the order of the times when they would finish a task."""
    able = [one for one in sleeping if work.suits(one)]
    if not able:
        return []
    able.sort(key=lambda one: (one.wake_s + work.seconds_on(one), one.name))
    running = [one for one in awake if work.suits(one)]
    if work.nodes > 1:
        present = [*running, *(one for one in coming if work.suits(one))]
        return _wake_for_gangs(work, present, able, allowed)
    left, left_in, reserved_s = work.tasks, Counter(allowed), -1.0
    for one in coming:
        if work.suits(one):
            left -= work.reserve(left, one, one.takes_within_s)
    woken: list[ComputerSlots] = []
    for computer in able:
        if computer.wake_s > reserved_s:
            reserved_s = computer.wake_s
            for one in running:
                left -= work.reserve(left, one, reserved_s)
        if left <= 0:
            break
        if left_in[computer.subnet] > 0:
            left_in[computer.subnet] -= 1
            left -= work.reserve(left, computer, computer.takes_within_s)
            woken.append(computer)
    return woken


def _wake_for_gangs(
    work: WaitingWork, present: Iterable[ComputerSlots], able: Iterable[ComputerSlots], allowed: Mapping[str, int]
) -> list[ComputerSlots]:
    """Return the sleeping computers that tasks on several computers lack. Slots are reserved for one task at a time.

    ``present``: computers that are awake or coming. If too few sleep, none is woken for a task.
    """
    pool, asleep, left_in, woken = [*present], [*able], Counter(allowed), list[ComputerSlots]()
    for _ in range(min(work.tasks, _MOST_GANGS)):
        if not asleep:
            break
        begin_s = asleep[min(work.nodes, len(asleep)) - 1].wake_s
        members = [one for one in pool if work.begins_s(one) <= (one.takes_within_s if one.wake_s else begin_s)][
            : work.nodes
        ]
        missing = asleep[: work.nodes - len(members)]
        if len(members) + len(missing) < work.nodes:
            break
        for computer in missing:
            if left_in[computer.subnet] > 0:
                left_in[computer.subnet] -= 1
                woken.append(computer)
        pool, asleep = [*pool, *missing], asleep[len(missing) :]
        for one in (*members, *missing):
            work.reserve(1, one, work.begins_s(one))
    return woken
