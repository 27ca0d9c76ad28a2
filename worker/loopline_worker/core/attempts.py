"""The attempts that a worker knows, their states, their order of start, and their part of a Report.

``Attempts`` is the only place that keeps a state. ``Admission`` serves the queue: an attempt starts, is prefetched,
or is preempted because it could start sooner elsewhere.
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
    slots: int = 0  # occupied now
    slot_numbers: tuple[int, ...] = ()  # in ascending order
    began: int = 0  # position in the order of starts
    frozen_at: float = 0.0
    verdict: tuple[Outcome, str] | None = None  # outcome and reason, if the machine ends it
    result: Result | None = None
    report: int = 0  # number of the Report that its result left with
    by_wing: bool = False  # a wing starts it, once it is prepared
    is_halted: bool = False  # a wing has frozen it, even if the owner allows it to run

    @property
    def slot(self) -> int:
        """Return the lowest number of its slots; 0 if it occupies none."""
        return self.slot_numbers[0] if self.slot_numbers else 0


class WaitingQueue(OrderedDict[AttemptId, AttemptRecord]):
    """Waiting attempts in order of arrival. ``widths``: number of attempts by the slots that they need."""

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
        """Return the attempts that need more than this number of slots."""
        if all(width <= slots for width in self.widths):
            return []
        return [attempt for attempt in self.values() if width_of(attempt) > slots]


_NOT_BEGUN = (State.WAITING, State.PREPARING, State.PREPARED, State.ENDING)
"""States of a wing's attempt that has not begun, or that ends before it begins."""
_ENDED = (State.DELIVERING, State.UNSENT, State.SENT)


class Attempts:
    """Records by state. Every change of a state goes through ``move``, which checks it against the table."""

    def __init__(self) -> None:
        self.waiting = WaitingQueue()
        self.prefetched, self.running, self.frozen, self.ending = _Some(), _Some(), _Some(), _Some()
        self.preparing, self.prepared = _Some(), _Some()
        self.delivering, self.unsent, self.sent = _Some(), _Some(), _Some()
        self.by_wings: dict[AttemptId, AttemptRecord] = {}  # wings will start them; until they have begun
        self.taken = 0  # slots in use
        self.with_slots = 0  # attempts that occupy slots
        self.doubted: set[AttemptId] = set()  # not begun; the master may have given them to other workers
        self.ending_gently: set[AttemptId] = set()  # have time to end, unless the owner needs the computer
        self.disowned: set[AttemptId] = set()  # of another life of the master's database: forgotten once ended
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
        """Return the record of an attempt; None if it is unknown."""
        return self._all.get(attempt_id)

    def add(self, attempt: AttemptRecord) -> None:
        """Add an attempt that was unknown."""
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
        """End an attempt that has begun, or may have. Return the instruction for it."""
        attempt.verdict = (outcome, reason)
        self.move(attempt, State.ENDING)
        if gently:
            self.ending_gently.add(attempt.id)
        return Kill(attempt.id, outcome, reason, gently)

    def kill_gentle(self) -> list[Kill]:
        """Return instructions that kill at once the attempts that were given time to end."""
        hurried = [self.ending[number] for number in sorted(self.ending_gently)]
        self.ending_gently.clear()
        return [Kill(attempt.id, *attempt.verdict) for attempt in hurried if attempt.verdict]

    def drop(self, attempt: AttemptRecord, outcome: Outcome, reason: str = "") -> None:
        """End an attempt that has not begun. Its result need not be on disk: after a crash, it waits again."""
        attempt.result = Result(attempt.id, outcome, reason=reason[:500])
        self.move(attempt, State.UNSENT)

    def forget(self, attempt: AttemptRecord) -> None:
        """Remove an attempt whose result was acknowledged. Raises AssertionError if it was never sent."""
        del self.sent[attempt.id], self._all[attempt.id]

    def disown(self) -> list[AttemptId]:
        """Mark all attempts as belonging to another life: no Report names them any more. Return their ids."""
        self.disowned = set(self._all)
        return list(self._all)

    def forget_disowned(self) -> list[AttemptId]:
        """Forget the attempts of another life that have ended. Return their ids."""
        ended = [attempt_id for attempt_id in self.disowned if self._all[attempt_id].state in _ENDED]
        for attempt_id in ended:
            del self._by_state[self._all.pop(attempt_id).state][attempt_id]
        self.disowned.difference_update(ended)
        return ended

    def occupy(self, attempt: AttemptRecord) -> None:
        """Give an attempt its slots. It becomes the youngest."""
        self._begun += 1
        attempt.began, attempt.slots = self._begun, width_of(attempt)
        attempt.slot_numbers = self._slot_numbers.pop(attempt.slots)
        self.taken += attempt.slots
        self.with_slots += 1

    def succeed(self, before: AttemptRecord, after: AttemptRecord) -> None:
        """Give the slots of an attempt that has ended to another."""
        if before.slots != width_of(after):
            self.free(before)
            self.occupy(after)
            return
        self._begun += 1
        after.began, after.slots, after.slot_numbers = self._begun, before.slots, before.slot_numbers
        before.slots, before.slot_numbers = 0, ()

    def free(self, attempt: AttemptRecord) -> None:
        """Release the slots of an attempt, if it has any."""
        if attempt.slots:
            self.taken -= attempt.slots
            self.with_slots -= 1
            self._slot_numbers.give_back(attempt.slot_numbers)
            attempt.slots, attempt.slot_numbers = 0, ()

    def oldest_first(self) -> list[AttemptRecord]:
        """Return the running and frozen attempts in the order of their start."""
        return sorted((*self.running.values(), *self.frozen.values()), key=lambda attempt: attempt.began)

    def doubt(self) -> None:
        """Block all attempts that have not begun until the master confirms them."""
        self.doubted = {*self.waiting, *self.prefetched}

    def fitting(self, free: int) -> Iterator[AttemptRecord]:
        """Yield the attempts that may begin in ``free`` slots, in order; one that does not fit is skipped."""
        if free < min(self.waiting.widths, default=free + 1):
            return
        for attempt in self.waiting.values():
            if width_of(attempt) <= free and attempt.id not in self.doubted:
                free -= width_of(attempt)
                yield attempt
                if free <= 0:
                    return

    def to_prefetch(self, most: int) -> list[AttemptRecord]:
        """Return at most ``most`` attempts from the head of the queue, as long as each can run in any slot."""
        return list(islice(takewhile(self._may_be_prefetched, self.waiting.values()), most))

    def _may_be_prefetched(self, attempt: AttemptRecord) -> bool:
        """True for a plain process in one slot."""
        run = attempt.run
        if run is None or run.slots != 1 or attempt.id in self.doubted:
            return False
        if attempt.by_wing or run.function or run.software:
            return False
        return not (run.has_files or run.row_file or run.checkpoint)


class SlotNumbers:
    """Numbers of a worker's slots, from 1. The lowest free ones are used first."""

    def __init__(self) -> None:
        self._free: list[int] = []  # a heap
        self._known = 0

    def pop(self, count: int) -> tuple[int, ...]:
        """Return the ``count`` lowest free numbers, now in use."""
        while len(self._free) < count:
            self._known += 1
            self._free.append(self._known)  # the largest, so the list remains a heap
        return tuple(heappop(self._free) for _ in range(count))

    def give_back(self, numbers: Iterable[int]) -> None:
        """Free these numbers."""
        for number in numbers:
            heappush(self._free, number)


class _Some(dict[AttemptId, AttemptRecord]):
    """Attempts in one state, in the order in which they entered it."""


def width_of(attempt: AttemptRecord) -> int:
    """Return how many slots it needs to run."""
    return attempt.run.slots if attempt.run else 0


class Admission:
    """Serves the queue of a worker. Its only state is that of a retract."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._is_retracting = False  # the outcome of a retract is not known yet
        self.has_retracted = False  # a retract was carried out in this step: what is still prefetched has begun

    def retract(self, steps: Instructions) -> None:
        """Retract the prefetched attempts, unless that has just been done."""
        if self._attempts.prefetched and not (self._is_retracting or self.has_retracted):
            self._is_retracting = True
            steps.todo.append(Retract())

    @property
    def is_retracting(self) -> bool:
        """True until the outcome of a retract is known. Nothing begins before."""
        return self._is_retracting

    def retracted(self) -> None:
        """Note the outcome of a retract."""
        self._is_retracting, self.has_retracted = False, True

    def serve(self, allowed: int, pause_reason: str, why: str, room: int, steps: Instructions) -> None:
        """Start the attempts that fit in the ``allowed`` slots, and prefetch up to ``room`` others.

        ``pause_reason``: why nothing may start; ``why``: why no more slots are allowed.
        """
        if pause_reason:
            self.retract(steps)
            self._drop(0, pause_reason, steps)
            return
        if self._attempts.prefetched and self._attempts.taken < allowed:
            self.retract(steps)  # they came before the waiting ones, so the free slots are theirs
        if not self._is_retracting:
            self._begin(allowed, steps)
        self._drop(allowed, why, steps)
        if room:
            self._prefetch(allowed, room, steps)

    def _begin(self, allowed: int, steps: Instructions) -> None:
        """Start the waiting attempts that fit."""
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
        """Prefetch the head of the queue if every slot is occupied by an attempt of its own."""
        attempts = self._attempts
        if self._is_retracting or not attempts.waiting or not attempts.taken == attempts.with_slots == allowed > 0:
            return
        for attempt in attempts.to_prefetch(room):
            assert attempt.run
            attempts.move(attempt, State.PREFETCHED)
            steps.journal.began.append(attempt.id)
            steps.todo.append(Prefetch(attempt.run))

    def _drop(self, wider_than: int, reason: str, steps: Instructions) -> None:
        """Preempt waiting attempts that need more slots than ``wider_than``."""
        dropped = self._attempts.waiting.wider_than(wider_than)
        for attempt in dropped:
            self._attempts.drop(attempt, Outcome.GIVEN_BACK, reason)
        if dropped:
            steps.todo.append(Log(f"{len(dropped)} waiting attempts return to the queue: {reason}"))


@dataclass(slots=True)
class AttemptInventory:
    """All attempts for a Report, each of them once."""

    holding: list[AttemptId]  # occupy slots
    delivering: list[AttemptId]  # ended; their results are not in this Report
    results: list[Result]  # oldest first
    waiting: list[AttemptId]  # not begun, in order of arrival; wings report theirs


def inventory_of(attempts: Attempts) -> AttemptInventory:
    """Return the attempts for the next Report.

    An attempt whose result does not fit is reported as delivering: left out, the master would believe it lost.
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
    """Return how many results, from the first on, fit in one Report."""
    files = accumulate(len(result.outputs) for result in islice(results, MAX_RESULTS_PER_REPORT))
    return sum(1 for _ in takewhile(lambda count: count <= MAX_OUTPUT_FILES_PER_REPORT, files))


def names_files(result: Result) -> bool:
    """True if the master must have files before it may receive the result."""
    value = result.value and result.value.sha256
    return bool(value or result.stdout.sha256 or result.stderr.sha256 or result.outputs)
