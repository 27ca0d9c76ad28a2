"""What the agent holds and what it has still to tell: no I/O, no clock, no randomness.

An attempt is *held* (from the Assign that starts it until its result may be sent), or its result is
*unsent*, or *sent* in a Report of this session and not yet acknowledged, or it is unknown: never two of these.
Whatever a master sends has an answer here, "ignored" included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile

from shared.model import AttemptId, Result
from shared.protocol.messages import MAX_OUTPUT_FILES_PER_REPORT, MAX_RESULTS_PER_REPORT, Assign, Run


@dataclass(frozen=True, slots=True)
class Instructions:
    """What an Assign asks of the agent, once all that is already done is left out."""

    start: tuple[Run, ...] = ()
    cancel: tuple[AttemptId, ...] = ()
    forget: tuple[AttemptId, ...] = ()  # the master has these results on disk: they leave the spool


class Core:
    """The agent's side of the reconcile table (architecture.md, "The way of one task")."""

    def __init__(self, results: Iterable[Result] = (), held: Iterable[AttemptId] = ()) -> None:
        """What the spool restored: results to send, and attempts whose result has yet to become ready."""
        self._unsent = {result.attempt: result for result in results}
        self._sent: dict[AttemptId, tuple[int, Result]] = {}
        self._held = {attempt: None for attempt in held if attempt not in self._unsent}
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
        return not (self._held or self._unsent or self._sent)

    def connected(self) -> None:
        """A new session: what the last one sent may be lost, so that every result is sent again."""
        self._unsent = {attempt: result for attempt, (_, result) in self._sent.items()} | self._unsent
        self._sent = {}

    def assigned(self, assign: Assign) -> Instructions:
        """Take over an Assign. Runs of attempts that are known, and cancels of those not held, are ignored."""
        forget = tuple(attempt for attempt, (seq, _) in self._sent.items() if seq <= assign.seen)
        for attempt in forget:
            del self._sent[attempt]
        unwanted = dict.fromkeys(assign.cancel)
        start = {run.attempt: run for run in assign.run if run.attempt not in unwanted and self._is_new(run)}
        cancel = tuple(attempt for attempt in unwanted if attempt in self._held)
        self._held |= dict.fromkeys(start)
        self._owes_report |= bool(start) or len(cancel) < len(unwanted)
        return Instructions(tuple(start.values()), cancel, forget)

    def ended(self, result: Result) -> None:
        """The attempt is over; the caller has its result on disk, and whatever the result names with the master."""
        self._held.pop(result.attempt, None)
        if result.attempt not in self._sent:
            self._unsent.setdefault(result.attempt, result)

    def to_report(self) -> tuple[tuple[AttemptId, ...], tuple[Result, ...]]:
        """What the next Report says: attempts in hand, and results, oldest first.

        A result that has to wait for a later Report leaves its attempt in hand: left out of both, the master
        would take it for lost.
        """
        waiting = list(self._unsent)
        fits = _fits(self._unsent.values())
        now, later = waiting[:fits], waiting[fits:]
        return (*self._held, *later), tuple(self._unsent[attempt] for attempt in now)

    def reported(self, seq: int, results: Iterable[Result]) -> None:
        """These results left in Report ``seq`` of this session."""
        for result in results:
            if self._unsent.pop(result.attempt, None):
                self._sent[result.attempt] = (seq, result)
        self._owes_report = False

    def _is_new(self, run: Run) -> bool:
        return not any(run.attempt in known for known in (self._held, self._unsent, self._sent))


def _fits(results: Iterable[Result]) -> int:
    """How many of them, from the first on, a Report can bring."""
    files = accumulate(len(result.outputs) for result in islice(results, MAX_RESULTS_PER_REPORT))
    return sum(1 for _ in takewhile(lambda count: count <= MAX_OUTPUT_FILES_PER_REPORT, files))
