"""What the agent holds and what it has still to tell: no I/O, no clock, no randomness.

An attempt *waits* (from the Assign that brings it until slots are free for it), or is *held* (from its beginning
until its result may be sent), or its result is *unsent*, or *sent* in a Report of this session and not yet
acknowledged, or it is unknown: never two of these. Whatever a master sends has an answer here, "ignored" included.

What waits begins in the order in which it came, the moment that slots are free: no frame is needed between two tasks.
Where tasks are short, the first of those that wait are *lined up*: handed on before there is a slot, and each begins
in the place of one that has ended, so that never more run than there are slots. Until it has begun, such an attempt
still waits, as the master is told; but it may have begun just now, so that only who runs it can end it. Nothing that
came later begins before it: where slots are free all the same, it is recalled (``is_uneven``).

While the master may have given it elsewhere (after a restart, with a new link, or when the link has been gone for a
lease) nothing of it begins, until an Assign shows that the master has heard what is waiting here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile

from loopline_shared.model import MAX_ID, AttemptId, Outcome, Result
from loopline_shared.protocol.messages import MAX_OUTPUT_FILES_PER_REPORT, MAX_RESULTS_PER_REPORT, Assign, Run


@dataclass(slots=True)  # not frozen: that makes the making of one twice as dear
class Instructions:
    """What an Assign asks of the agent, once all that is already done is left out."""

    start: tuple[Run, ...] = ()  # now; others wait
    cancel: tuple[AttemptId, ...] = ()  # of those that have begun, or may have
    forget: tuple[AttemptId, ...] = ()  # the master has these results on disk: they leave the disk


class Core:
    """The agent's side of the reconcile table (architecture.md, "The way of one task")."""

    def __init__(
        self,
        results: Iterable[Result] = (),
        held: Iterable[AttemptId] = (),
        waiting: Iterable[Run] = (),
        slots: int = MAX_ID,
    ) -> None:
        """What was restored: results to send, attempts whose result has yet to become ready, and runs that had
        not begun. ``slots``: those in which attempts may begin now.
        """
        self._unsent = {result.attempt: result for result in results}
        self._sent: dict[AttemptId, tuple[int, Result]] = {}
        self._held = {attempt: 0 for attempt in held if attempt not in self._unsent}  # slots that it takes up
        self._taken = 0  # slots that these take up
        self._at_work = 0  # how many of these take up any
        self._lined_up: dict[AttemptId, Run] = {}
        self._waiting = OrderedDict[AttemptId, Run]()
        self._widths: dict[int, int] = {}  # how many wait for so many slots
        for run in waiting:
            if not self._knows(run.attempt):
                self._put(run)
        self._slots = slots
        self._doubted = set(self._waiting)  # the master may have given these elsewhere
        self._owes_report = False

    @property
    def has_results(self) -> bool:
        """A result waits to be sent: a Report is due at once."""
        return bool(self._unsent)

    @property
    def has_news(self) -> bool:
        """The master does not know all yet: a Report is due soon, even where it brings no result."""
        return self._owes_report or self.has_results

    @property
    def is_idle(self) -> bool:
        """Nothing is held, and the master has every result on disk."""
        return not (self._waiting or self._lined_up or self._held or self._unsent or self._sent)

    @property
    def waiting(self) -> tuple[AttemptId, ...]:
        """What has not begun, in the order in which it came."""
        return (*self._lined_up, *self._waiting)

    @property
    def is_busy(self) -> bool:
        """Something waits here for a slot."""
        return bool(self._waiting or self._lined_up)

    @property
    def is_uneven(self) -> bool:
        """Slots are free, and what is lined up waits elsewhere: before anything begins, it is to be recalled."""
        return bool(self._lined_up) and self._taken < self._slots

    @property
    def may_line_up(self) -> bool:
        """The first of those that wait may begin in the place of any."""
        if self._taken != self._slots or self._taken != self._at_work:
            return False
        first = next(iter(self._waiting.values()), None)
        return first is not None and self._may_be_lined_up(first)

    def has(self, attempt: AttemptId) -> bool:
        """It is in hand: it waits, or it has begun."""
        return attempt in self._held or self.is_waiting(attempt)

    def is_waiting(self, attempt: AttemptId) -> bool:
        return attempt in self._waiting or attempt in self._lined_up

    def connected(self) -> None:
        """A new session: what the last one sent may be lost, so that every result is sent again."""
        self._unsent = {attempt: result for attempt, (_, result) in self._sent.items()} | self._unsent
        self._sent = {}
        self.doubt()

    def doubt(self) -> None:
        """The master may have given elsewhere what waits here: nothing of it begins before that is known."""
        self._doubted = set(self._waiting)

    def assigned(self, assign: Assign) -> Instructions:
        """Take over an Assign. Runs of attempts that are known, and cancels of those not in hand, are ignored."""
        forget = tuple(self._acknowledged(assign.seen))
        for attempt in forget:
            del self._sent[attempt]
        unwanted = dict.fromkeys(assign.cancel)
        cancel = self._cancelled(unwanted) if unwanted else ()
        for run in assign.run:
            if run.attempt not in unwanted and not self._knows(run.attempt):
                self._put(run)
                self._owes_report = True
        if assign.seen > 0:  # a Report of this session has said what waits, and it would have been cancelled
            self._doubted.clear()
        return Instructions(self._begin(), cancel, forget)

    def allow(self, slots: int) -> tuple[Run, ...]:
        """Attempts may begin as long as so many slots are not taken up; the runs that begin now."""
        self._slots = slots
        return self._begin()

    def left(self, *attempts: AttemptId) -> tuple[Run, ...]:
        """Nothing runs of these any more: their slots are free, ready or not. The runs that begin now."""
        for attempt in attempts:
            if attempt in self._held:
                self._free(attempt)
                self._held[attempt] = 0
        return self._begin()

    def line_up(self, most: int) -> tuple[Run, ...]:
        """The first of those that wait, so many at most: they may begin in the place of others.

        Only processes and nothing else, each in one slot as all that is at work: then any place is as good.
        """
        if not self.may_line_up:
            return ()
        found = tuple(islice(takewhile(self._may_be_lined_up, self._waiting.values()), max(0, most)))
        for run in found:
            self._take_out(run.attempt)
            self._lined_up[run.attempt] = run
        return found

    def followed(self, before: AttemptId, after: AttemptId) -> Run:
        """What was lined up has begun in the place of one that has ended."""
        run = self._lined_up.pop(after)
        self._free(before)
        self._held[before] = 0
        self._occupy(run)
        return run

    def returned(self, attempts: Sequence[AttemptId]) -> None:
        """These were lined up, and will not begin by themselves: they wait, before all others, as they came."""
        theirs = set(attempts)
        for attempt in [attempt for attempt in reversed(self._lined_up) if attempt in theirs]:
            run = self._lined_up.pop(attempt)
            self._put(run)
            self._waiting.move_to_end(attempt, last=False)

    def recalled(self) -> tuple[Run, ...]:
        """What is still lined up has begun by now. The runs that begin now."""
        return self._begin(is_even=True)

    def ended(self, result: Result) -> tuple[Run, ...]:
        """The attempt is over; the caller has its result on disk, and whatever the result names with the master.
        The runs that begin now.
        """
        self._free(result.attempt)
        self._held.pop(result.attempt, None)
        self._lined_up.pop(result.attempt, None)
        self._take_out(result.attempt)
        if result.attempt not in self._sent:
            self._unsent.setdefault(result.attempt, result)
        return self._begin()

    def give_back(self, reason: str, *, wider_than: int = 0) -> tuple[AttemptId, ...]:
        """What waits (for more slots than that) will not begin here; which that was."""
        if all(width <= wider_than for width in self._widths):
            return ()
        dropped = tuple(attempt for attempt, run in self._waiting.items() if run.slots > wider_than)
        self._drop(dropped, Outcome.GIVEN_BACK, reason)
        return dropped

    def to_report(self) -> tuple[tuple[AttemptId, ...], tuple[Result, ...]]:
        """What the next Report says beside what waits: attempts that have begun, and results, oldest first.

        A result that has to wait for a later Report leaves its attempt in hand: left out of both, the master
        would take it for lost.
        """
        unsent = tuple(self._unsent.values())
        fits = _fits(unsent)
        later = tuple(result.attempt for result in unsent[fits:])
        return (*self._held, *later), unsent[:fits]

    def reported(self, seq: int, results: Iterable[Result]) -> None:
        """These results left in Report ``seq`` of this session."""
        for result in results:
            if self._unsent.pop(result.attempt, None):
                self._sent[result.attempt] = (seq, result)
        self._owes_report = False

    def _begin(self, is_even: bool = False) -> tuple[Run, ...]:
        """Those of the waiting for which slots are free: from now on they are held."""
        if not self._waiting:
            return ()
        free, begun = self._slots - self._taken, list[Run]()
        if free <= 0 or (self.is_uneven and not is_even):
            return ()
        if free < min(self._widths, default=MAX_ID) or len(self._doubted) == len(self._waiting):
            return ()
        for run in self._waiting.values():
            if run.slots <= free and run.attempt not in self._doubted:
                free -= run.slots
                begun.append(run)
            if free <= 0:
                break
        for run in begun:
            self._take_out(run.attempt)
            self._occupy(run)
        return tuple(begun)

    def _occupy(self, run: Run) -> None:
        self._held[run.attempt] = run.slots
        self._taken += run.slots
        self._at_work += 1

    def _free(self, attempt: AttemptId) -> None:
        """The slots that it takes up, if it does."""
        slots = self._held.get(attempt, 0)
        self._taken -= slots
        self._at_work -= slots > 0

    def _may_be_lined_up(self, run: Run) -> bool:
        is_process = not (run.function or run.inputs or run.own_inputs or run.outputs or run.row_file)
        return is_process and run.slots == 1 and run.attempt not in self._doubted

    def _put(self, run: Run) -> None:
        """It waits, after all others."""
        self._waiting[run.attempt] = run
        self._widths[run.slots] = self._widths.get(run.slots, 0) + 1

    def _take_out(self, attempt: AttemptId) -> None:
        """It waits no longer, if it did."""
        if run := self._waiting.pop(attempt, None):
            self._doubted.discard(attempt)
            self._widths[run.slots] -= 1
            if not self._widths[run.slots]:
                del self._widths[run.slots]

    def _acknowledged(self, seen: int) -> Iterator[AttemptId]:
        """Whose results were in Reports up to this: those that were sent first."""
        for attempt, (seq, _) in self._sent.items():
            if seq > seen:
                return
            yield attempt

    def _drop(self, attempts: Iterable[AttemptId], outcome: Outcome, reason: str) -> None:
        """Nothing of them ran: their results need not be on disk, for whoever finds them again finds them waiting."""
        for attempt in attempts:
            self._take_out(attempt)
            self._unsent[attempt] = Result(attempt, outcome, reason=reason[:500])

    def _cancelled(self, unwanted: Collection[AttemptId]) -> tuple[AttemptId, ...]:
        """Those that have begun, or may have. What waits is dropped, and what is not in hand makes a Report due."""
        begun = tuple(attempt for attempt in unwanted if attempt in self._held or attempt in self._lined_up)
        self._drop([attempt for attempt in unwanted if attempt in self._waiting], Outcome.CANCELLED, "")
        self._owes_report |= len(begun) < len(unwanted)
        return begun

    def _knows(self, attempt: AttemptId) -> bool:
        return self.has(attempt) or attempt in self._unsent or attempt in self._sent


def _fits(results: Iterable[Result]) -> int:
    """How many of them, from the first on, a Report can bring."""
    files = accumulate(len(result.outputs) for result in islice(results, MAX_RESULTS_PER_REPORT))
    return sum(1 for _ in takewhile(lambda count: count <= MAX_OUTPUT_FILES_PER_REPORT, files))
