"""The attempts that a worker knows, each in one state: the only place that keeps it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core.instructions import Kill
from loopline_worker.core.transitions import TRANSITIONS, State


@dataclass(slots=True, eq=False)
class AttemptRecord:
    """Record of an attempt, from the Assign that brought it until the master has its result."""

    id: AttemptId
    state: State
    run: Run | None = None  # None: an earlier agent ran it
    slots: int = 0  # that it takes up now
    began: int = 0  # its place in the order in which attempts began
    frozen_at: float = 0.0
    verdict: tuple[Outcome, str] | None = None  # what it is to end as, where it was told to
    result: Result | None = None
    report: int = 0  # number of the Report that its result left with


class WaitingQueue(OrderedDict[AttemptId, AttemptRecord]):
    """Attempts that wait for a slot, in the order in which they came, and how many of them need how many slots."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: dict[int, int] = {}

    def __setitem__(self, attempt_id: AttemptId, attempt: AttemptRecord) -> None:
        super().__setitem__(attempt_id, attempt)
        width = width_of(attempt)
        self.widths[width] = self.widths.get(width, 0) + 1

    def __delitem__(self, attempt_id: AttemptId) -> None:
        width = width_of(self[attempt_id])
        super().__delitem__(attempt_id)
        self.widths[width] -= 1
        if not self.widths[width]:
            del self.widths[width]

    def wider_than(self, slots: int) -> list[AttemptRecord]:
        """Return those that need more slots."""
        if all(width <= slots for width in self.widths):
            return []
        return [attempt for attempt in self.values() if width_of(attempt) > slots]


class Attempts:
    """Records by state. Every change of a state goes through ``move``, which holds it against the table."""

    def __init__(self) -> None:
        self.waiting = WaitingQueue()
        self.prefetched, self.running, self.frozen, self.ending = _Some(), _Some(), _Some(), _Some()
        self.delivering, self.unsent, self.sent = _Some(), _Some(), _Some()
        self.taken = 0  # slots that are taken up
        self.with_slots = 0  # attempts that take up any
        self.doubted: set[AttemptId] = set()  # have not begun, and the master may have given them elsewhere
        self._all: dict[AttemptId, AttemptRecord] = {}
        self._begun = 0
        self._by_state: dict[State, dict[AttemptId, AttemptRecord]] = {
            State.WAITING: self.waiting,
            State.PREFETCHED: self.prefetched,
            State.RUNNING: self.running,
            State.FROZEN: self.frozen,
            State.ENDING: self.ending,
            State.DELIVERING: self.delivering,
            State.UNSENT: self.unsent,
            State.SENT: self.sent,
        }

    def __contains__(self, attempt_id: AttemptId) -> bool:
        return attempt_id in self._all

    def __len__(self) -> int:
        return len(self._all)

    def get(self, attempt_id: AttemptId) -> AttemptRecord | None:
        """Return its record; None if it is unknown."""
        return self._all.get(attempt_id)

    def add(self, attempt: AttemptRecord) -> None:
        """Enter an attempt that was unknown."""
        self._all[attempt.id] = self._by_state[attempt.state][attempt.id] = attempt

    def move(self, attempt: AttemptRecord, state: State) -> None:
        """Change its state. Raises AssertionError if the table forbids it."""
        if state not in TRANSITIONS[attempt.state]:
            raise AssertionError(f"attempt {attempt.id} may not go from {attempt.state} to {state}")
        del self._by_state[attempt.state][attempt.id]
        attempt.state = state
        self._by_state[state][attempt.id] = attempt
        if self.doubted and state is not State.WAITING and state is not State.PREFETCHED:
            self.doubted.discard(attempt.id)

    def end(self, attempt: AttemptRecord, outcome: Outcome, reason: str = "") -> Kill:
        """Have what has begun, or may have, end so. Return the instruction for it."""
        attempt.verdict = (outcome, reason)
        self.move(attempt, State.ENDING)
        return Kill(attempt.id, outcome, reason)

    def drop(self, attempt: AttemptRecord, outcome: Outcome, reason: str = "") -> None:
        """Give an attempt of which nothing ran its result.

        It need not be on disk: whoever finds the attempt again finds it waiting.
        """
        attempt.result = Result(attempt.id, outcome, reason=reason[:500])
        self.move(attempt, State.UNSENT)

    def forget(self, attempt: AttemptRecord) -> None:
        """Remove an attempt whose result was acknowledged. Raises AssertionError if it was never sent."""
        del self.sent[attempt.id], self._all[attempt.id]

    def occupy(self, attempt: AttemptRecord) -> None:
        """Have it take up its slots, as the youngest."""
        self._begun += 1
        attempt.began, attempt.slots = self._begun, width_of(attempt)
        self.taken += attempt.slots
        self.with_slots += 1

    def free(self, attempt: AttemptRecord) -> None:
        """Have it take up no slots any more, if it did."""
        if attempt.slots:
            self.taken -= attempt.slots
            self.with_slots -= 1
            attempt.slots = 0

    def oldest_first(self) -> list[AttemptRecord]:
        """Return what runs or stands frozen, in the order in which it began."""
        return sorted((*self.running.values(), *self.frozen.values()), key=lambda attempt: attempt.began)

    def doubt(self) -> None:
        """Let nothing of what is here begin before the master has said that it wants it here."""
        self.doubted = {*self.waiting, *self.prefetched}

    def fitting(self, free: int) -> Iterator[AttemptRecord]:
        """Yield what may begin in so many free slots: the first that fits, and so on."""
        if free < min(self.waiting.widths, default=free + 1):
            return
        for attempt in self.waiting.values():
            if width_of(attempt) <= free and attempt.id not in self.doubted:
                free -= width_of(attempt)
                yield attempt
                if free <= 0:
                    return

    def to_prefetch(self, most: int) -> list[AttemptRecord]:
        """Return the first of those that wait, so many at most, if any slot is as good for them as any other."""
        return list(islice(takewhile(self._may_be_prefetched, self.waiting.values()), most))

    def _may_be_prefetched(self, attempt: AttemptRecord) -> bool:
        """True for a mere process in one slot."""
        run = attempt.run
        if run is None or run.slots != 1 or attempt.id in self.doubted:
            return False
        return not (run.function or run.inputs or run.own_inputs or run.outputs or run.row_file)


class _Some(dict[AttemptId, AttemptRecord]):
    """Attempts in one state, by the time at which they came into it."""


def width_of(attempt: AttemptRecord) -> int:
    """Return how many slots it needs to run."""
    return attempt.run.slots if attempt.run else 0
