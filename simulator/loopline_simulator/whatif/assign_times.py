"""The times that Assigns and cancels took in a recording, and would take in a replay of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from statistics import median

from loopline_master.core.events import Batch, WorkerReported
from loopline_master.core.kernel.effects import Effects
from loopline_shared.model import AttemptId, AttemptState, TaskId

_CANCELLED = AttemptState.CANCELLED
_ENDING = (AttemptState.CANCELLING, AttemptState.RETRACTING)
_JUST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Cancel:
    """A cancel of an attempt, and how long it took until its worker confirmed it."""

    task: TaskId
    at: float
    took_s: float


@dataclass(slots=True)
class _Unseen:
    """An Assign that its worker has not answered yet: its time, and that of the last report since."""

    at: float
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = self.at


class AssignTimes:
    """``note`` takes the recording's steps in, one after the other; ``took_s`` answers afterwards."""

    def __init__(self) -> None:
        self._cancels: dict[str, list[Cancel]] = defaultdict(list)  # by worker
        self._seen_within_s: dict[tuple[str, float], tuple[float, float]] = {}
        """By worker and time of an Assign: the last report that does not know of it, and the first that does."""
        self._unseen: dict[str, dict[int, _Unseen]] = defaultdict(dict)  # by worker and number of the Assign
        self._cancelled: dict[AttemptId, float] = {}  # time of each cancel that was not reported yet
        self._usual_s = cache(self._median_s)

    def forget(self, worker: str) -> None:
        """Forget what a worker has not seen: it has a new session, and Assigns count from one again."""
        self._unseen[worker].clear()

    def note(self, batch: Batch, effects: Effects, now: float) -> None:
        """Note how long it took until a worker had seen an Assign, and until it confirmed a cancel."""
        for event in batch.events:
            if isinstance(event, WorkerReported):
                self._note_seen(event.worker, event.report.seen, now)
        for worker, assign in effects.assigns.items():
            if assign.run or assign.cancel:  # others need no report
                self._unseen[worker][assign.seq] = _Unseen(now)
        for attempt in effects.attempts.values():
            if attempt.state in _ENDING:
                self._cancelled.setdefault(attempt.id, now)
            elif (since := self._cancelled.pop(attempt.id, None)) is not None and attempt.state is _CANCELLED:
                self._cancels[attempt.worker].append(Cancel(attempt.task_id, since, now - since))

    def took_s(self, worker: str, cancelled: Collection[TaskId], now: float) -> float:
        """Return the time from an Assign to the report of its outcome.

        It is the time that a recorded cancel of one of the tasks took here at about this time. Without one, it is the
        usual time of cancels, limited to the interval between the last report that did not yet reflect an Assign of
        this time, and the first one that did.
        """
        for cancel in self._cancels[worker]:
            if cancel.task in cancelled and abs(now - cancel.at) <= cancel.took_s:
                return cancel.took_s
        unseen_s, seen_s = self._seen_within_s.get((worker, now), (0.0, math.inf))
        least_s = unseen_s + _JUST_S if unseen_s else 0.0
        return max(0.0, min(max(self._usual_s(worker), least_s), seen_s - _JUST_S))

    def _note_seen(self, worker: str, seen: int, now: float) -> None:
        unseen = self._unseen[worker]
        for seq, assign in list(unseen.items()):
            if seq <= seen:
                self._seen_within_s[worker, assign.at] = (assign.until - assign.at, now - assign.at)
                del unseen[seq]
            else:
                assign.until = now

    def _median_s(self, worker: str) -> float:
        found = self._cancels[worker]
        return median(cancel.took_s for cancel in found) if found else 0.0
