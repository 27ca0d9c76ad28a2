"""The door through which an optional feature, a *wing*, takes part in a step.

The kernel calls the hooks below at fixed points of a step. Each does nothing by default, and a wing overrides the
hooks that it needs. Wings are called in the order of one tuple (core/scheduler.py).

While a wing is *asleep* (``is_awake``), only its standing hooks are called, so that a job without the feature enters
none of its files. A wing calls ``Wings.arrange`` when it wakes up or falls asleep. Whether it is awake must follow
from rows: a scheduler that is started from them decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Any, ClassVar

from loopline_master.core.kernel.effects import Declined, Reply
from loopline_master.core.kernel.entities import Attempt, Job, SessionKey, Task, Worker
from loopline_master.core.kernel.stored_rows import Rows
from loopline_shared.model import AttemptId, AttemptState, Load, Result, TaskId
from loopline_shared.protocol.gang_messages import GangPlace, Word
from loopline_shared.protocol.worker_link import Assign, Report

Tell = Callable[[str], None]
"""Ensures that a worker is sent an Assign."""
Handler = Callable[[Any, Tell], Reply | None]
Ask = Callable[[Any], Iterator[Any]]
"""A policy's method ``plan`` or ``prefetch``: from its View to proposals."""


class Purpose(Enum):
    """Purpose of an attempt that may begin."""

    START = auto()
    REPLICA = auto()
    PREFETCH = auto()


@dataclass(frozen=True, slots=True)
class Veto:
    """A wing's objection to one attempt. ``explain`` puts the code into words."""

    code: str
    spends_turn: bool = False
    """True if the job's turn is spent; otherwise another of its tasks may be proposed at once."""


class Mechanism:
    """Hooks of a wing."""

    concerns: ClassVar[tuple[str, ...]] = ()
    """Attributes of a Job (``spec.checkpoint``): ``enters`` is called for jobs with one of them; (): for all jobs."""
    reported: ClassVar[tuple[str, ...]] = ()
    """Fields of a Report: ``brings_news`` is also called while the wing is asleep if one of them is there."""

    @property
    def is_awake(self) -> bool:
        """False while no entity of the grid concerns the wing."""
        return True

    # --- standing: called also while the wing is asleep -----------------------------------------------------

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        """Return the function that ``State.put`` calls, for each type of entity that the wing owns."""
        return {}

    def restore(self, rows: Rows) -> None:
        """Load the stored rows of its entities, and build its indexes. The kernel's indexes are complete by then."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return the wing's handlers by type of event. The owner of an event returns the reply, if any."""
        return {}

    def parts(self) -> Mapping[str, Callable[[Worker, Any], None]]:
        """Return the wing's handlers for parts of a Report, by name of the field; a part that is None is skipped."""
        return {}

    def admit(self, owner: str, tasks: int, spec_bytes: int, session: SessionKey | None) -> Declined | None:
        """Return the refusal of a job that is about to be submitted or retried."""

    def enters(self, job: Job) -> None:
        """Called when a job that ``concerns`` the wing is about to enter memory."""

    def needs(self, worker: Worker) -> bool:
        """True if this absent worker must not be forgotten yet."""
        return False

    def settings_change(self) -> None:
        """Called when other settings are in force. May lower ``State.prefetch_s``."""

    def worker_left(self, name: str) -> None:
        """Called when a worker has left or fallen silent: its last Report may be outdated."""

    def excuses(self, job: Job) -> bool:
        """True if the job waits for a start that the wing has promised."""
        return False

    def workers_to_hear(self, now: float) -> Iterable[str]:
        """Return the workers whose last Reports must be known at ``now``, even if they brought no news."""
        return ()

    def memory(self) -> Mapping[str, Any]:
        """Return the wing's memory that is not in rows or events, as fields of ``SnapshotWritten``."""
        return {}

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if an invariant of this job or worker is violated; None checks all invariants."""

    # --- called while the wing is awake ---------------------------------------------------------------------

    def brings_news(self, worker: Worker, report: Report) -> bool:
        """True if the wing needs a Report that brings the kernel no news. See ``reported``."""
        return False

    def due_at(self) -> float | None:
        """Return the time when ``expire`` is due; None if it is not."""

    def expire(self) -> None:
        """Apply the passage of time."""

    def place(self) -> Iterator[None]:
        """Start attempts before the policy is asked. Yields where indexes must be flushed."""
        yield from ()

    def in_turn(self, ask: Ask) -> Ask:
        """Return the policy's method, or a method that calls it."""
        return ask

    def replicate(self) -> Iterator[None]:
        """Start replicas that no policy proposes, at the end of placement. Yields where indexes must be flushed."""
        yield from ()

    def finish_step(self) -> None:
        """Called when nothing more is started in this step."""

    def addressees(self) -> Iterable[str]:
        """Return workers that are sent an Assign in this step, although they have not reported."""
        return ()

    def veto(self, job: Job, task: int, worker: Worker, purpose: Purpose) -> Veto | None:
        """Return the wing's objection to this attempt."""

    def most_waiting(self, job: Job, worker: Worker) -> float:
        """Return the limit of the worker's queue including a task of this job, in tasks."""
        return inf

    def overtaken(self, worker: Worker) -> None:
        """Called when a task has kept the worker longer than expected, so that others wait behind it."""

    def rank(self, owner: str) -> float:
        """Return the user's use of the grid, relative to their share."""
        return 0.0

    def turn_passes(self, job: Job) -> None:
        """Called when a job has its turn."""

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        """Called when an attempt's role changes (index/attempts.py)."""

    def load_changes(self, worker: Worker, before: Load | None) -> None:
        """Called when a worker has reported its load. ``before``: the load of its last Report."""

    def exemption_changes(self, job: Job, before: str, reason: str) -> None:
        """Called when a job ceases or begins to hold others; either reason may be empty."""

    def begins(self, job: Job, attempt: AttemptId, worker: Worker) -> float:
        """Called when an attempt is about to be dispatched.

        Return the work, in reference CPU-seconds, that it need not do again.
        """
        return 0.0

    # results

    def decides(self, job: Job, task: Task, attempt: Attempt) -> bool:
        """Count a successful attempt. False if its task needs further results."""
        return True

    def attempt_ended(
        self, job: Job, task: Task, attempt: Attempt, took_down: bool, is_slow: bool
    ) -> Iterable[Worker]:
        """Called at the end of an attempt, before its task ends. Return the workers that get no new work from now on.

        ``attempt.accepted``: its result decides the task. ``took_down``: its agent or sandbox has ended with it.
        ``is_slow``: others would have been far faster.
        """
        return ()

    def task_ended(self, job: Job, task: Task) -> None:
        """Called when a task is over."""

    def verdict(self, job: Job, task: Task) -> str | None:
        """Return the reason why a task without an attempt left must fail; None if it may be tried again."""

    def accuse(self, worker: Worker, reason: str) -> None:
        """Called when a worker behaves unlike an honest and healthy worker."""

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Add the wing's part of an Assign."""


class Lead:
    """The wing that leads the attempts of jobs with several nodes, which the kernel itself never places.

    An attempt of such a job is a member of a launch until the launch ends.
    """

    launches: Mapping[AttemptId, object] = {}
    """Launches that have not ended."""

    def leads(self, attempt: Attempt) -> bool:
        """True if the attempt is a member of a launch that has not ended."""
        return False

    def has_launch(self, task: TaskId) -> bool:
        """True if the task has a launch that has not ended."""
        return False

    def job_placed(self, job: Job) -> None:
        """Called when a job of several nodes has been indexed."""

    def take_result(self, attempt: Attempt, result: Result) -> None:
        """Handle the end of an attempt of such a job."""

    def lose(self, attempt: Attempt, reason: str, *, for_good: bool) -> None:
        """Handle the loss of an attempt of such a job."""

    def come_back(self, attempt: Attempt, new: AttemptState) -> None:
        """Take a lost member back in this state."""

    def note_members(self, report: Report, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Note the members that have not begun; return the other attempts."""
        return [*attempts]

    def follow(self, worker: Worker, seen: int) -> None:
        """Update launches after a Report of this worker."""

    def end_job(self, job: Job, reason: str, *, if_it_runs: bool) -> None:
        """End the launches of a job; running launches only with ``if_it_runs``."""

    def place_of(self, attempt: Attempt) -> GangPlace | None:
        """Return a member's place in its launch, a part of its Run."""

    def word_for(self, attempt: Attempt, worker: Worker) -> Word | None:
        """Return the word for a member; None if there is none."""


NO_LEAD = Lead()


class DataPlaces:
    """Places of large files, and their expected time to another worker: a part of the policies' View."""

    is_known: ClassVar = False
    """True if some worker has, or fetches, a large file."""

    def delay(self, job: Job, task: int, worker: str) -> float:
        """Return seconds until the task's large files are expected to be at this worker."""
        return 0.0

    def nearer_task(self, job: Job, task: int, worker: str) -> int:
        """Return the fresh task of the job that should go to this worker in place of this one."""
        return task

    def near(self, job: Job, task: int) -> list[str]:
        """Return a few workers that have or fetch large files of the task."""
        return []
