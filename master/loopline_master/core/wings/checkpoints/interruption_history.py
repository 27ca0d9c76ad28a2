"""History of interruptions on each worker, learned from attempts that take checkpoints.

A *stop* leaves the worker's disk as it was: the owner comes back, or the agent is restarted. After a *loss* the disk
is out of reach: the computer was switched off. The mean time between stops, or losses, is the time that attempts have
run divided by their number. A worker with little history is assumed to be average for its grid; a grid with little
history is assumed to have a stop each hour and a loss every four hours. All of it is forgotten when the master
restarts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline_master.core.kernel.entities import LIVE, Attempt, Worker
from loopline_shared.model import AttemptState
from loopline_shared.protocol.checkpoints import USUAL_LOSS_S, USUAL_STOP_S

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId

_LONGEST_S = 1e8
_AS_GOOD_AS = 2.0
"""The grid's experience counts for a worker as much as this many interruptions of its own."""


@dataclass(slots=True)
class _Record:
    """``ran_s``: run time of the attempts that have ended, less the time when each of the running ones began."""

    ran_s: float = 0.0
    running: int = 0
    stops: int = 0
    losses: int = 0

    def seen_s(self, now: float) -> float:
        return self.ran_s + self.running * now


class InterruptionHistory:
    """Counts the interruptions of each worker and of the grid."""

    def __init__(self) -> None:
        self._began: dict[AttemptId, float] = {}
        self._grid = _Record()
        self._workers: defaultdict[str, _Record] = defaultdict(_Record)

    def means_s(self, worker: str, now: float) -> tuple[float, float]:
        """Return the mean times between stops and between losses that an attempt on the worker is to expect."""
        grid, own = self._grid, self._workers[worker]
        stop_s = (grid.seen_s(now) + USUAL_STOP_S) / (grid.stops + 1)
        loss_s = (grid.seen_s(now) + USUAL_LOSS_S) / (grid.losses + 1)
        return (
            min(_LONGEST_S, (own.seen_s(now) + _AS_GOOD_AS * stop_s) / (own.stops + _AS_GOOD_AS)),
            min(_LONGEST_S, (own.seen_s(now) + _AS_GOOD_AS * loss_s) / (own.losses + _AS_GOOD_AS)),
        )

    def follow(self, attempt: Attempt, worker: Worker, now: float, *, stops_itself: bool) -> None:
        """Note that an attempt has begun or ended. ``stops_itself``: it may end in order to save its state."""
        is_known = attempt.id in self._began
        if attempt.state in LIVE and not is_known:
            self._begin(attempt, now)
        elif attempt.state not in LIVE and is_known:
            self._end(attempt, worker, now, stops_itself=stops_itself)

    def keep(self, workers: Container[str]) -> None:
        """Forget workers other than these."""
        for name in [name for name in self._workers if name not in workers]:
            del self._workers[name]

    def _begin(self, attempt: Attempt, now: float) -> None:
        self._began[attempt.id] = now
        for record in (self._grid, self._workers[attempt.worker]):
            record.ran_s -= now
            record.running += 1

    def _end(self, attempt: Attempt, worker: Worker, now: float, *, stops_itself: bool) -> None:
        del self._began[attempt.id]
        is_lost = attempt.state is AttemptState.LOST
        comes_back = attempt.ended_at is not None and not worker.facts.transient  # another agent there lacks it
        is_returned = attempt.state is AttemptState.CANCELLED and not stops_itself
        for record in (self._grid, self._workers[attempt.worker]):
            record.ran_s += now
            record.running -= 1
            record.losses += is_lost and not comes_back
            record.stops += (is_lost and comes_back) or is_returned
