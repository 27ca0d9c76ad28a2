"""The state of the worker on this computer, as its owner sees it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from loopline_shared.model import Quarantine
from loopline_worker.attempts.runner import Runner
from loopline_worker.owner.blockers import PauseEnd
from loopline_worker.owner.owner_monitor import OwnerMonitor
from loopline_worker.owner.preferences import in_words
from loopline_worker.settings import WorkerSettings
from loopline_worker.state.attempt_log import Contributed, Contribution


@dataclass(frozen=True, slots=True)
class RunningTask:
    """Task, by its job's name alone, because what it computes is its user's business."""

    job: str
    ran_s: float
    frozen: bool


@dataclass(frozen=True, slots=True)
class PastFreeze:
    """Tasks that were frozen for the owner's sake at one time."""

    at: float
    tasks: int
    took_s: float
    after_input: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """All that the owner is shown; times are seconds since 1970."""

    worker: str
    dedicated: bool
    slots: int  # offered to the grid now
    most_slots: int
    why: str  # there are no more slots
    paused: str  # the end of the pause, in words; empty: not paused
    in_use: bool
    idle_s: float | None
    seen_by: str
    running: list[RunningTask]
    freezes: list[PastFreeze]  # the latest first
    yields: int
    yield_p50_s: float
    yield_p99_s: float
    preferences: list[str]
    notice: str = ""  # of the master: the reason why it gives this computer no new tasks for a while
    peers: str = ""  # the port that is open to other workers; empty: none is
    sandbox: str = ""  # the kind of sandbox, and its meaning
    contributed: dict[str, Contributed] = field(default_factory=dict)  # by user, the largest first
    contributed_since: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the state for a program."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> WorkerState:
        """Return the state that ``to_json`` made a document of."""
        known = {name: value for name, value in document.items() if name in cls.__dataclass_fields__}
        known["running"] = [RunningTask(**task) for task in document["running"]]
        known["freezes"] = [PastFreeze(**entry) for entry in document["freezes"]]
        users = document.get("contributed", {})
        known["contributed"] = {user: Contributed(**entry) for user, entry in users.items()}
        return cls(**known)


class OwnerControls:
    """Shows the owner the worker's state, and pauses it."""

    def __init__(
        self,
        worker: str,
        settings: WorkerSettings,
        monitor: OwnerMonitor,
        runner: Runner,
        *,
        most_slots: int,
        quarantine: Callable[[], Quarantine | None] = lambda: None,
        peers: Callable[[], str] = str,
        sandbox: str = "",
        contribution: Contribution | None = None,
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._most_slots = most_slots
        self._monitor = monitor
        self._runner = runner
        self._quarantine = quarantine
        self._peers = peers
        self._sandbox = sandbox
        self._contribution = contribution

    def state(self) -> WorkerState:
        """Return the current state."""
        monitor = self._monitor
        seen, figures, history = monitor.idleness, monitor.history.yielded(), monitor.history.recent
        is_watched = monitor.preferences.needs_presence
        is_known = is_watched and seen.idle_s is not None and math.isfinite(seen.idle_s)
        return WorkerState(
            worker=self._worker,
            dedicated=self._settings.dedicated,
            slots=monitor.decision.slots,
            most_slots=self._most_slots,
            why=monitor.decision.why,
            paused=monitor.pause.words(time.time()),
            in_use=monitor.is_in_use,
            idle_s=round(seen.certain_idle_s, 1) if is_known else None,
            seen_by=seen.by if is_watched else "",
            running=[RunningTask(name, round(held.wall_s, 1), held.frozen) for name, held in self._runner.in_hand()],
            freezes=[
                PastFreeze(y.at, y.attempts, round(y.took_s, 3), y.after_input, y.why) for y in reversed(history)
            ],
            yields=figures.count,
            yield_p50_s=figures.p50_s,
            yield_p99_s=figures.p99_s,
            preferences=in_words(self._settings, monitor.preferences),
            notice=_notice(self._quarantine()),
            peers=self._peers(),
            sandbox=self._sandbox,
            contributed=_ordered(self._contribution.users if self._contribution else {}),
            contributed_since=self._contribution.since if self._contribution else 0.0,
        )

    def pause(self, end: PauseEnd) -> None:
        """Keep all tasks off until then."""
        self._monitor.pause.set(end)
        self._monitor.nudge()

    def resume(self) -> None:
        """End the pause."""
        self._monitor.pause.clear()
        self._monitor.nudge()


def _ordered(users: dict[str, Contributed]) -> dict[str, Contributed]:
    return dict(sorted(users.items(), key=lambda user: -user[1].core_s))


def _notice(quarantine: Quarantine | None) -> str:
    if quarantine is None or quarantine.until <= time.time():
        return ""
    until = time.strftime("%H:%M", time.localtime(quarantine.until))
    return f"The grid gives this computer nothing new until {until}: {quarantine.reason}."
