"""Breadth-first exploration of all states of a grid, so that the first violation found has a shortest path."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.explored.grid import Configuration, GridState
from tests.explored.key import key_of

COLLECT_EVERY = 5_000
"""Events between two garbage collections, which take as long as all the rest if Python chooses the times."""
CANNOT_END = "from here the grid cannot come to its end"


class Counterexample(AssertionError):
    """A violation, with the events that lead to it."""

    def __init__(self, about: str, path: list[str], violation: str) -> None:
        lines = [f"{number:3}. {event}" for number, event in enumerate(path, 1)]
        super().__init__("\n".join([f"{about}: after {len(path)} events: {violation}", *lines]))
        self.path = path


@dataclass(frozen=True)
class Explored:
    """What was seen."""

    states: int
    events: int
    ends: int  # states where all jobs have ended
    longest: int  # events of the longest of the shortest paths
    cpu_s: float


class Explorer:
    """Explores one configuration, completely."""

    def __init__(self, about: Configuration, *, exchanges_workers: bool = True, compares: bool = False) -> None:
        """``compares``: check that states with one key lead to the same keys."""
        self._about, self._exchanges_workers, self._compares = about, exchanges_workers, compares
        self._numbers: dict[bytes, int] = {}  # of states, by key
        self._reached: list[tuple[int, str]] = []  # by state: the one before it, and the event between
        self._before: list[list[int]] = []  # by state: every state with an event that leads to it
        self._ends: list[int] = []
        self._after: list[set[bytes]] = []  # by state: the keys that follow
        self._again: list[tuple[int, set[bytes]]] = []  # the same of other states with the key

    def run(self) -> Explored:
        """Explore all states. Raises Counterexample on the first violation."""
        gc.collect()
        gc.disable()  # each event makes a scheduler full of cycles
        try:
            return self._explored()
        finally:
            gc.enable()
            gc.collect()

    def _explored(self) -> Explored:
        since, events, longest = time.process_time(), 0, 0
        first = self._about.first()
        frontier = [(self._note(self._key(first), first, 0, ""), first)]
        while frontier:
            following: list[tuple[int, GridState]] = []
            for number, state in frontier:
                for event, happen in list(state.events()):
                    events, after = events + 1, self._checked(number, event, happen)
                    if events % COLLECT_EVERY == 0:
                        gc.collect()
                    key = self._key(after)
                    self._after[number].add(key)
                    if key not in self._numbers:
                        following.append((self._note(key, after, number, event), after))
                        continue
                    self._before[self._numbers[key]].append(number)
                    if self._compares:
                        self._again.append((self._numbers[key], {self._key(act()) for _, act in after.events()}))
            frontier, longest = following, longest + bool(following)
        self._check_ends()
        for number, keys in self._again:
            if keys != self._after[number]:
                raise Counterexample(
                    self._about.name, self._path(number), "another state with this key leads elsewhere"
                )
        return Explored(len(self._numbers), events, len(self._ends), longest, time.process_time() - since)

    def _checked(self, number: int, event: str, happen: Callable[[], GridState]) -> GridState:
        try:
            after = happen()
            after.check()
        except Exception as error:
            raise Counterexample(self._about.name, [*self._path(number), event], _said(error)) from error
        return after

    def _key(self, state: GridState) -> bytes:
        return key_of(state, exchanges_workers=self._exchanges_workers)

    def _note(self, key: bytes, state: GridState, before: int, event: str) -> int:
        """Number a new state, and check it."""
        number = self._numbers[key] = len(self._numbers)
        self._after.append(set())
        self._reached.append((before, event))
        self._before.append([before])
        if state.is_done:
            self._ends.append(number)
        try:
            state.check_restart()
        except AssertionError as error:
            raise Counterexample(self._about.name, self._path(number), _said(error)) from error
        return number

    def _check_ends(self) -> None:
        """Check that every state leads to one where all jobs have ended: nothing waits for ever."""
        leads = set(self._ends)
        waiting = list(self._ends)
        while waiting:
            for before in self._before[waiting.pop()]:
                if before not in leads:
                    leads.add(before)
                    waiting.append(before)
        lost = next((number for number in range(len(self._reached)) if number not in leads), None)
        if lost is not None:
            raise Counterexample(self._about.name, self._path(lost), CANNOT_END)

    def _path(self, number: int) -> list[str]:
        path: list[str] = []
        while number:
            number, event = self._reached[number]
            path.append(event)
        return path[::-1]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
