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
from typing import Any

from loopline_master.core.kernel.effects import Declined, Reply
from loopline_master.core.kernel.entities import Attempt, Job, SessionKey, Task, Worker
from loopline_master.core.kernel.stored_rows import Rows
from loopline_shared.model import AttemptState, Result, TaskId
from loopline_shared.protocol.gang_messages import GangPlace, Word
from loopline_shared.protocol.worker_link import Assign, Report

Tell = Callable[[str], None]
"""Has a worker sent an Assign."""
Handler = Callable[[Any, Tell], Reply | None]
Ask = Callable[[Any], Iterator[Any]]
"""A method of a policy, ``plan`` or ``prefetch``: its View to proposals."""


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
    """True if the job's turn has passed all the same; else another of its tasks may be proposed at once."""


class Mechanism:
    """Hooks of a wing."""

    @property
    def is_awake(self) -> bool:
        """False while no entity of the grid concerns the wing."""
        return True

    # --- standing: called also while the wing is asleep -----------------------------------------------------

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        """Return, for each type of entity that the wing owns, what ``State.put`` does with one."""
        return {}

    def restore(self, rows: Rows) -> None:
        """Take in the stored rows of its entities, and build its indexes: the kernel's are complete."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return what the wing does at an event, by its type. The reply is that of the event's owner, if any."""
        return {}

    def parts(self) -> Mapping[str, Callable[[Worker, Any], None]]:
        """Return what the wing does with a part of a Report, by the name of the field; None is skipped."""
        return {}

    def admit(self, owner: str, tasks: int, spec_bytes: int, session: SessionKey | None) -> Declined | None:
        """Return the refusal of a job that is about to come, or to come again."""

    def enters(self, job: Job) -> None:
        """Take in that a job is about to enter memory."""

    def needs(self, worker: Worker) -> bool:
        """True if the worker, which is away, must not be forgotten yet."""
        return False

    def settings_change(self) -> None:
        """Take in that other settings are in force. May lower ``State.prefetch_s``."""

    def worker_left(self, name: str) -> None:
        """Take in that a worker has left or fallen silent: its last Report may be outdated."""

    def brings_news(self, worker: Worker, report: Report) -> bool:
        """True if something of the wing's follows from a Report that tells the kernel nothing new."""
        return False

    def workers_to_hear(self, now: float) -> Iterable[str]:
        """Return the workers whose last Reports must be known at ``now``, be it that they brought no news."""
        return ()

    def checkpoint(self) -> Mapping[str, Any]:
        """Return what the wing goes by beside rows and events, as fields of ``Checkpointed``."""
        return {}

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if an invariant of this job or worker is violated; None: any invariant at all."""

    # --- called while the wing is awake ---------------------------------------------------------------------

    def due_at(self) -> float | None:
        """Return the time at which ``expire`` is due; None if it is not."""

    def expire(self) -> None:
        """Let time do its part."""

    def place(self) -> Iterator[None]:
        """Start attempts before the policy is asked. Yields where indexes must be flushed."""
        yield from ()

    def in_turn(self, ask: Ask) -> Ask:
        """Return the policy's method, or a method that calls it."""
        return ask

    def replicate(self) -> Iterator[None]:
        """Start replicas that no policy proposes, after all else. Yields where indexes must be flushed."""
        yield from ()

    def finish_step(self) -> None:
        """Take in that nothing more is started in this step."""

    def veto(self, job: Job, task: int, worker: Worker, purpose: Purpose) -> Veto | None:
        """Return the wing's objection to this attempt."""

    def most_waiting(self, job: Job, worker: Worker) -> float:
        """Return how long the worker's queue may be including a task of this job, in tasks."""
        return inf

    def overtaken(self, worker: Worker) -> None:
        """Take in that a task took the worker longer than expected: others wait there behind it."""

    def rank(self, owner: str) -> float:
        """Return how much a user has had of the grid, for their share."""
        return 0.0

    def turn_passes(self, job: Job) -> None:
        """Take in that a job has its turn."""

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        """Take in that an attempt counts as something else than before (index/attempts.py)."""

    def exemption_changes(self, job: Job, before: str, reason: str) -> None:
        """Take in that a job holds no other job any more, or does so again; the reasons, either may be empty."""

    # results

    def decides(self, job: Job, task: Task, attempt: Attempt) -> bool:
        """Count a successful attempt. False if its task needs more than its result."""
        return True

    def attempt_ended(
        self, job: Job, task: Task, attempt: Attempt, took_down: bool, is_slow: bool
    ) -> Iterable[Worker]:
        """Take in the end of an attempt, before its task ends. Return the workers that get nothing new from now on.

        ``attempt.accepted``: its result decides the task. ``took_down``: its agent or sandbox has ended with it.
        ``is_slow``: others would have been far faster.
        """
        return ()

    def task_ended(self, job: Job, task: Task) -> None:
        """Take in that a task is over."""

    def verdict(self, job: Job, task: Task) -> str | None:
        """Return why a task that has no attempt left must fail; None if it may be tried again."""

    def accuse(self, worker: Worker, reason: str) -> None:
        """Take in that a worker did what an honest and healthy one does not."""

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Add the wing's part of an Assign."""


class Lead:
    """The wing that leads the attempts of jobs with several nodes, which the kernel itself never places.

    An attempt of such a job is a member of a launch until the launch ends.
    """

    def leads(self, attempt: Attempt) -> bool:
        """True if the attempt is a member of a launch that has not ended."""
        return False

    def has_launch(self, task: TaskId) -> bool:
        """True if the task has a launch that has not ended."""
        return False

    def job_placed(self, job: Job) -> None:
        """Take in that a job of several nodes was indexed."""

    def take_result(self, attempt: Attempt, result: Result) -> None:
        """Take in the end of an attempt of such a job."""

    def lose(self, attempt: Attempt, reason: str, *, for_good: bool) -> None:
        """Take in that an attempt of such a job is lost."""

    def come_back(self, attempt: Attempt, new: AttemptState) -> None:
        """Take a lost member back in this state."""

    def note_members(self, report: Report, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Take in the members that have not begun; return the other attempts."""
        return [*attempts]

    def follow(self, worker: Worker, seen: int) -> None:
        """Update launches after a Report of this worker."""

    def end_job(self, job: Job, reason: str, *, if_it_runs: bool) -> None:
        """End the launches of a job; running launches only with ``if_it_runs``."""

    def place_of(self, attempt: Attempt) -> GangPlace | None:
        """Return what the Run of a member says of its launch."""

    def word_for(self, attempt: Attempt, worker: Worker) -> Word | None:
        """Return the word that a member must be told; None if there is none."""


NO_LEAD = Lead()


class DataPlaces:
    """Places of large files, and the time they would take to another worker: a part of the policies' View."""

    @property
    def is_known(self) -> bool:
        """True if some worker has, or fetches, a large file."""
        return False

    def delay(self, job: Job, task: int, worker: str) -> float:
        """Return seconds until the task's large files are expected to be at this worker."""
        return 0.0

    def nearer_task(self, job: Job, task: int, worker: str) -> int:
        """Return the never-started task of the job that should go to this worker in place of this one."""
        return task

    def near(self, job: Job, task: int) -> list[str]:
        """Return a few workers that have large files of the task, or fetch them."""
        return []
