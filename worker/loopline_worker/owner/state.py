"""What an owner is told of the worker on this computer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from loopline_shared.model import Probation
from loopline_worker.attempts.runner import Runner
from loopline_worker.owner.owner_monitor import OwnerMonitor
from loopline_worker.owner.preferences import in_words
from loopline_worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Running:
    """One task: the job's name and no more, for what it computes is its user's business."""

    job: str
    ran_s: float
    frozen: bool


@dataclass(frozen=True, slots=True)
class Gave:
    """Tasks stood still for the owner's sake."""

    at: float
    tasks: int
    took_s: float
    after_input: bool
    why: str


@dataclass(frozen=True, slots=True)
class State:
    """All of it; times are seconds since 1970."""

    worker: str
    dedicated: bool
    slots: int  # offered to the grid now
    most_slots: int
    why: str  # no more than that
    paused: str  # until when, in words; empty: not
    in_use: bool
    idle_s: float | None
    seen_by: str
    running: list[Running]
    gave: list[Gave]  # the latest first
    yields: int
    yield_p50_s: float
    yield_p99_s: float
    terms: list[str]
    notice: str = ""  # of the master: why it gives this computer nothing new for a while


class Watcher:
    """Puts the state together."""

    def __init__(
        self,
        worker: str,
        settings: WorkerSettings,
        most_slots: int,
        yielding: OwnerMonitor,
        runner: Runner,
        probation: Callable[[], Probation | None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._most_slots = most_slots
        self._yielding = yielding
        self._runner = runner
        self._probation = probation

    def state(self) -> State:
        told, sight, figures = self._yielding, self._yielding.sight, self._yielding.journal.yielded()
        is_asked = told.terms.asks_who_is_there
        return State(
            self._worker,
            self._settings.dedicated,
            told.consent.slots,
            self._most_slots,
            told.consent.why,
            told.pause.words(time.time()),
            told.is_in_use,
            round(sight.idle_s, 1) if is_asked and sight.idle_s is not None and math.isfinite(sight.idle_s) else None,
            sight.by if is_asked else "",
            [Running(name, round(held.wall_s, 1), held.frozen) for name, held in self._runner.in_hand()],
            [Gave(y.at, y.attempts, round(y.took_s, 3), y.after_input, y.why) for y in reversed(told.journal.recent)],
            figures.count,
            figures.p50_s,
            figures.p99_s,
            in_words(self._settings, told.terms),
            _notice(self._probation()),
        )

    def pause(self, until: float) -> None:
        """Until then nothing runs here."""
        self._yielding.pause.set(until)
        self._yielding.nudge()

    def resume(self) -> None:
        self._yielding.pause.clear()
        self._yielding.nudge()


def _notice(probation: Probation | None) -> str:
    if probation is None or probation.until <= time.time():
        return ""
    until = time.strftime("%H:%M", time.localtime(probation.until))
    return f"The grid gives this computer nothing new until {until}: {probation.reason}."
