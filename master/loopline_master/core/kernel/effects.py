"""Effects of a step: rows to store, replies, and frames to send once the rows are on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.runs import ProgramKey
from loopline_shared.errors import ExceededLimit
from loopline_shared.model import AttemptId, Result, TaskId
from loopline_shared.protocol.worker_link import Assign

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out (or had nothing to do)."""


@dataclass(frozen=True, slots=True)
class Submitted:
    job: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """Reply to a request that was refused and changed nothing. ``status`` is HTTP's."""

    status: int
    code: str
    message: str
    hint: str = ""
    quota: ExceededLimit | None = None


Reply = Done | Submitted | Declined


@dataclass(slots=True, init=False)
class Effects:
    """Effects of one step. Entities are the scheduler's own objects: read them before the next step."""

    grid: Grid
    replies: list[Reply]  # one an event, in order
    jobs: dict[int, Job]
    tasks: dict[TaskId, Task]
    attempts: dict[AttemptId, Attempt]
    workers: dict[str, Worker]
    programs: dict[ProgramKey, Program]
    forgotten: list[ProgramKey]  # programs; one may have been learnt again since
    forgotten_jobs: tuple[int, ...]  # that ended long ago: their rows are deleted
    gone: tuple[str, ...]  # absent workers that are forgotten at the end of the step
    completed: list[int]  # jobs that succeeded or failed: to be audited
    overstated: list[tuple[str, AttemptId]]  # (worker, attempt): figures of its result were far from possible
    late: list[tuple[str, Result]]
    """(worker, result) of attempts no longer in memory; if the row is *lost*, the result is recorded there."""
    assigns: dict[str, Assign]  # by worker, for its open link
    closes: list[tuple[str, int]]  # (worker, session): links to close
    of_wings: dict[type, dict[Any, Any]]
    dropped_by_wings: dict[type, list[Any]]
    told_by_wings: dict[type, list[Any]]

    def __init__(self, grid: Grid, **rows: Any) -> None:
        """Begin with these rows and no other effects. Written out: each step makes one, and factories are slow."""
        self.grid, self.forgotten_jobs, self.gone = grid, (), ()
        self.replies, self.forgotten, self.completed, self.overstated = [], [], [], []
        self.late, self.closes = [], []
        self.jobs, self.tasks, self.attempts, self.workers, self.programs, self.assigns = {}, {}, {}, {}, {}, {}
        self.of_wings, self.dropped_by_wings, self.told_by_wings = {}, {}, {}
        for name, value in rows.items():
            setattr(self, name, value)

    def rows(self, kind: type[Thing]) -> dict[Any, Thing]:
        """Return the changed entities of a wing, of this class, by key."""
        return self.of_wings.get(kind, {})

    def note(self, key: object, entity: object) -> None:
        """Note a changed entity of a wing."""
        self.of_wings.setdefault(type(entity), {})[key] = entity

    def dropped(self, kind: type) -> list[Any]:
        """Return the keys of a wing's entities of this class whose rows are deleted."""
        return self.dropped_by_wings.get(kind, [])

    def drop(self, kind: type, key: object) -> None:
        """Note that a wing's row is deleted. A new one may be noted later in the step."""
        self.rows(kind).pop(key, None)
        self.dropped_by_wings.setdefault(kind, []).append(key)

    def told(self, kind: type[Thing]) -> list[Thing]:
        """Return the notices of a wing, of this class."""
        return self.told_by_wings.get(kind, [])

    def tell(self, notice: object) -> None:
        """Note a notice that is not a row, for callers that ask for its class."""
        self.told_by_wings.setdefault(type(notice), []).append(notice)
