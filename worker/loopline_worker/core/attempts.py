"""The attempts that a worker knows: the state of each, which begins next, and what a Report says of them.

``Attempts`` is the only place that keeps a state. ``Admission`` serves the queue: an attempt starts, is prefetched,
or is preempted because it would wait for long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, islice, takewhile

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import MAX_OUTPUT_FILES_PER_REPORT, MAX_RESULTS_PER_REPORT, Run
from loopline_worker.core.instructions import Instructions, Kill, Log, Prefetch, Prepare, Retract, Start
from loopline_worker.core.transitions import TRANSITIONS, State


@dataclass(slots=True, eq=False)
class AttemptRecord:
    """Record of an attempt, from the Assign that brought it until the master has its result."""

    id: AttemptId
    state: State
    run: Run | None = None  # None: an earlier agent ran it
    slots: int = 0  # that it takes up now
    slot_numbers: tuple[int, ...] = ()  # of these, from the lowest on
    began: int = 0  # its place in the order in which attempts began
    frozen_at: float = 0.0
    verdict: tuple[Outcome, str] | None = None  # what it is to end as, where it was told to
    result: Result | None = None
    report: int = 0  # number of the Report that its result left with
    by_wing: bool = False  # a wing starts it, once it is prepared
    is_halted: bool = False  # a wing has frozen it, even if the owner allows it to run

    @property
    def slot(self) -> int:
        """Return the lowest number of its slots; 0 if it takes up none."""
        return self.slot_numbers[0] if self.slot_numbers else 0


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


_NOT_BEGUN = (State.WAITING, State.PREPARING, State.PREPARED, State.ENDING)
"""States in which an attempt that a wing starts has not begun, or ends before it does."""
_ENDED = (State.DELIVERING, State.UNSENT, State.SENT)


class Attempts:
    """Records by state. Every change of a state goes through ``move``, which holds it against the table."""

    def __init__(self) -> None:
        self.waiting = WaitingQueue()
        self.prefetched, self.running, self.frozen, self.ending = _Some(), _Some(), _Some(), _Some()
        self.preparing, self.prepared = _Some(), _Some()
        self.delivering, self.unsent, self.sent = _Some(), _Some(), _Some()
        self.by_wings: dict[AttemptId, AttemptRecord] = {}  # that wings start, until they have begun
        self.taken = 0  # slots that are taken up
        self.with_slots = 0  # attempts that take up any
        self.doubted: set[AttemptId] = set()  # have not begun, and the master may have given them elsewhere
        self.ending_gently: set[AttemptId] = set()  # they have some time yet, unless the owner wants the computer
        self.disowned: set[AttemptId] = set()  # of another life of the master's database: they end, and are forgotten
        self._all: dict[AttemptId, AttemptRecord] = {}
        self._begun = 0
        self._slot_numbers = SlotNumbers()
        self._by_state: dict[State, dict[AttemptId, AttemptRecord]] = {
            State.WAITING: self.waiting,
            State.PREFETCHED: self.prefetched,
            State.PREPARING: self.preparing,
            State.PREPARED: self.prepared,
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
        if attempt.by_wing:
            self.by_wings[attempt.id] = attempt

    def move(self, attempt: AttemptRecord, state: State) -> None:
        """Change its state. Raises AssertionError if the table forbids it."""
        if state not in TRANSITIONS[attempt.state]:
            raise AssertionError(f"attempt {attempt.id} may not go from {attempt.state} to {state}")
        del self._by_state[attempt.state][attempt.id]
        if self.ending_gently:
            self.ending_gently.discard(attempt.id)
        attempt.state = state
        self._by_state[state][attempt.id] = attempt
        if self.doubted and state is not State.WAITING and state is not State.PREFETCHED:
            self.doubted.discard(attempt.id)
        if self.by_wings and state not in _NOT_BEGUN:
            self.by_wings.pop(attempt.id, None)

    def end(self, attempt: AttemptRecord, outcome: Outcome, reason: str = "", *, gently: bool = False) -> Kill:
        """Have what has begun, or may have, end so. Return the instruction for it."""
        attempt.verdict = (outcome, reason)
        self.move(attempt, State.ENDING)
        if gently:
            self.ending_gently.add(attempt.id)
        return Kill(attempt.id, outcome, reason, gently)

    def kill_gentle(self) -> list[Kill]:
        """Return the instructions that kill at once what was given time to end."""
        hurried = [self.ending[number] for number in sorted(self.ending_gently)]
        self.ending_gently.clear()
        return [Kill(attempt.id, *attempt.verdict) for attempt in hurried if attempt.verdict]

    def drop(self, attempt: AttemptRecord, outcome: Outcome, reason: str = "") -> None:
        """Give an attempt of which nothing ran its result.

        It need not be on disk: whoever finds the attempt again finds it waiting.
        """
        attempt.result = Result(attempt.id, outcome, reason=reason[:500])
        self.move(attempt, State.UNSENT)

    def forget(self, attempt: AttemptRecord) -> None:
        """Remove an attempt whose result was acknowledged. Raises AssertionError if it was never sent."""
        del self.sent[attempt.id], self._all[attempt.id]

    def disown(self) -> list[AttemptId]:
        """Let all be of another life: no Report names them any more. Return them."""
        self.disowned = set(self._all)
        return list(self._all)

    def forget_disowned(self) -> list[AttemptId]:
        """Forget those of another life of which nothing runs any more, and return them."""
        ended = [attempt_id for attempt_id in self.disowned if self._all[attempt_id].state in _ENDED]
        for attempt_id in ended:
            del self._by_state[self._all.pop(attempt_id).state][attempt_id]
        self.disowned.difference_update(ended)
        return ended

    def occupy(self, attempt: AttemptRecord) -> None:
        """Have it take up its slots, as the youngest."""
        self._begun += 1
        attempt.began, attempt.slots = self._begun, width_of(attempt)
        attempt.slot_numbers = self._slot_numbers.pop(attempt.slots)
        self.taken += attempt.slots
        self.with_slots += 1

    def succeed(self, before: AttemptRecord, after: AttemptRecord) -> None:
        """Have one attempt take up the slot of another, which has ended in it."""
        if before.slots != width_of(after):
            self.free(before)
            self.occupy(after)
            return
        self._begun += 1
        after.began, after.slots, after.slot_numbers = self._begun, before.slots, before.slot_numbers
        before.slots, before.slot_numbers = 0, ()

    def free(self, attempt: AttemptRecord) -> None:
        """Have it take up no slots any more, if it did."""
        if attempt.slots:
            self.taken -= attempt.slots
            self.with_slots -= 1
            self._slot_numbers.give_back(attempt.slot_numbers)
            attempt.slots, attempt.slot_numbers = 0, ()

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
        if attempt.by_wing or run.function or run.software:
            return False
        return not (run.has_files or run.row_file)


class SlotNumbers:
    """Numbers of a worker's slots, from 1. Whoever needs some has the lowest that are free."""

    def __init__(self) -> None:
        self._free: list[int] = []  # a heap
        self._known = 0

    def pop(self, count: int) -> tuple[int, ...]:
        """Return so many numbers, which are free no more."""
        while len(self._free) < count:
            self._known += 1
            self._free.append(self._known)  # the largest: the heap is one still
        return tuple(heappop(self._free) for _ in range(count))

    def give_back(self, numbers: Iterable[int]) -> None:
        """Let them be free."""
        for number in numbers:
            heappush(self._free, number)


class _Some(dict[AttemptId, AttemptRecord]):
    """Attempts in one state, by the time at which they came into it."""


def width_of(attempt: AttemptRecord) -> int:
    """Return how many slots it needs to run."""
    return attempt.run.slots if attempt.run else 0


class Admission:
    """Serves the queue of a worker. Its only state is that of a retract."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._is_retracting = False  # for a retract, whose outcome is not known
        self.has_retracted = (
            False  # a retract was carried out: until the end of the step, what is prefetched has begun
        )

    def retract(self, steps: Instructions) -> None:
        """Take back what is prefetched, unless that has just been done."""
        if self._attempts.prefetched and not (self._is_retracting or self.has_retracted):
            self._is_retracting = True
            steps.todo.append(Retract())

    @property
    def is_retracting(self) -> bool:
        """True until the outcome of a retract is known: nothing begins before."""
        return self._is_retracting

    def retracted(self) -> None:
        """Note the outcome of a retract."""
        self._is_retracting, self.has_retracted = False, True

    def serve(self, allowed: int, pause_reason: str, why: str, room: int, steps: Instructions) -> None:
        """Start what fits in the ``allowed`` slots, and prefetch as many attempts as there is ``room`` for.

        ``pause_reason``: why nothing may start; ``why``: why no more slots are allowed.
        """
        if pause_reason:
            self.retract(steps)
            self._drop(0, pause_reason, steps)
            return
        if self._attempts.prefetched and self._attempts.taken < allowed:
            self.retract(steps)  # it came before what waits: it may have the free slots first
        if not self._is_retracting:
            self._begin(allowed, steps)
        self._drop(allowed, why, steps)
        if room:
            self._prefetch(allowed, room, steps)

    def _begin(self, allowed: int, steps: Instructions) -> None:
        """Start what waits and fits, unless what was prefetched comes first."""
        attempts = self._attempts
        free = allowed - attempts.taken
        if free <= 0 or not attempts.waiting:
            return
        for attempt in list(attempts.fitting(free)):
            assert attempt.run
            attempts.occupy(attempt)
            if attempt.by_wing:
                attempts.move(attempt, State.PREPARING)
                steps.todo.append(Prepare(attempt.run, attempt.slot))
                continue
            attempts.move(attempt, State.RUNNING)
            steps.journal.began.append(attempt.id)
            steps.todo.append(Start(attempt.run, attempt.slot))

    def _prefetch(self, allowed: int, room: int, steps: Instructions) -> None:
        """Hand on the first of those that wait, where every slot is taken by an attempt of its own."""
        attempts = self._attempts
        if self._is_retracting or not attempts.waiting or not attempts.taken == attempts.with_slots == allowed > 0:
            return
        for attempt in attempts.to_prefetch(room):
            assert attempt.run
            attempts.move(attempt, State.PREFETCHED)
            steps.journal.began.append(attempt.id)
            steps.todo.append(Prefetch(attempt.run))

    def _drop(self, wider_than: int, reason: str, steps: Instructions) -> None:
        """Preempt what waits for more slots than that."""
        dropped = self._attempts.waiting.wider_than(wider_than)
        for attempt in dropped:
            self._attempts.drop(attempt, Outcome.GIVEN_BACK, reason)
        if dropped:
            steps.todo.append(Log(f"{len(dropped)} attempts that waited return to the queue: {reason}"))


@dataclass(slots=True)
class AttemptInventory:
    """All attempts that are in hand, each of them once."""

    holding: list[AttemptId]  # take up slots
    delivering: list[AttemptId]  # have ended, and their results do not go with this Report
    results: list[Result]  # the oldest first
    waiting: list[AttemptId]  # have not begun, in the order in which they came; without those of wings


def inventory_of(attempts: Attempts) -> AttemptInventory:
    """Return what the next Report says.

    A result that has to wait for a later Report leaves its attempt in hand: left out of both, the master would take
    it for lost.
    """
    results = [attempt.result for attempt in attempts.unsent.values() if attempt.result]
    fits = _fits(results)
    seated = [number for number, attempt in attempts.ending.items() if attempt.slots]
    holding = [*attempts.running, *attempts.frozen, *seated]
    succeeded = (number for number, attempt in attempts.ending.items() if not attempt.slots)  # by one in its slot
    delivering = [*succeeded, *attempts.delivering, *(result.attempt for result in results[fits:])]
    waiting = [*attempts.prefetched, *attempts.waiting]
    if attempts.by_wings or attempts.disowned:
        left_out = attempts.by_wings.keys() | attempts.disowned
        holding, delivering, waiting = (
            [attempt for attempt in some if attempt not in left_out] for some in (holding, delivering, waiting)
        )
    return AttemptInventory(holding, delivering, results[:fits], waiting)


def _fits(results: Iterable[Result]) -> int:
    """Return how many of them, from the first on, a Report can bring."""
    files = accumulate(len(result.outputs) for result in islice(results, MAX_RESULTS_PER_REPORT))
    return sum(1 for _ in takewhile(lambda count: count <= MAX_OUTPUT_FILES_PER_REPORT, files))


def names_files(result: Result) -> bool:
    """True if the master must have files before it may have the result."""
    value = result.value and result.value.sha256
    return bool(value or result.stdout.sha256 or result.stderr.sha256 or result.outputs)
