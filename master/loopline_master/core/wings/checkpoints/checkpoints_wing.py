"""The wing *checkpoints*: each new attempt continues from the newest checkpoint it may use.

*Newest* means most work contained, never latest in time: a replica may be behind another attempt. A checkpoint with
less work than a known one is not kept. An open task keeps its two newest; a task that failed or was cancelled keeps
one, for a retry; a task that succeeded keeps none.

A checkpoint is used only where it can be: on the same system unless its job says ``portable``; for the vote of a
quorum only on the one worker that computed all of it; elsewhere not while a worker of its line is in quarantine; and
not after attempts that continued from it have failed twice, for it may be what makes them fail.

Each attempt with checkpoints has an account of their costs and of the CPU time in them, which is not lost with it.

The order guarantee is not concerned: checkpoints change when a task ends, never a job's size or its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

from loopline_master.core.estimates import measure
from loopline_master.core.events import CheckpointsRecalled, JobRetried
from loopline_master.core.kernel.door.mechanism import Handler, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import Attempt, Job, Task, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.wings.checkpoints import gang_checkpoints
from loopline_master.core.wings.checkpoints.interruption_history import InterruptionHistory
from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount, ResumedAttempt, SavedCheckpoint
from loopline_shared.model import AttemptId, AttemptState, Facts, TaskId, TaskState
from loopline_shared.parallel import launch_of
from loopline_shared.protocol.checkpoints import (
    DEFAULT_CHECKPOINT_BYTES,
    MAX_LINE,
    MAX_STEP,
    CheckpointCosts,
    CheckpointOrder,
    CheckpointReport,
    TakenCheckpoint,
)
from loopline_shared.protocol.worker_link import Assign, Report

KEPT = 2
"""Checkpoints that an open task keeps."""
MOST_FAILED = 2
"""After this many failures of attempts that continued from it, a checkpoint is not used again."""


class Checkpoints(Wing):
    """Awake while a job that takes checkpoints is in memory."""

    concerns = ("spec.checkpoint",)
    reported = ("checkpoints",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._jobs: set[int] = set()  # jobs that take checkpoints; some of them may have left memory
        self._recalled: set[int] = set()  # jobs about to be retried
        self._saved: dict[TaskId, list[SavedCheckpoint]] = {}  # the newest last
        self._resumed: dict[AttemptId, ResumedAttempt] = {}
        self._accounts: dict[AttemptId, CheckpointAccount] = {}
        self._history = InterruptionHistory()
        self.refused: dict[AttemptId, str] = {}
        """Why running attempts take no checkpoints, for ``explain`` alone; forgotten when the master restarts."""

    @property
    def is_awake(self) -> bool:
        return bool(self._jobs)

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            SavedCheckpoint: self._note_saved,
            ResumedAttempt: self._note_resumed,
            CheckpointAccount: self._note_account,
        }

    def restore(self, rows: Rows) -> None:
        self._jobs = {job.id for job in self.state.jobs.values() if job.spec.checkpoint}
        for job in self._jobs:
            self.state.jobs[job].saved = None
        for saved in rows.of(SavedCheckpoint):
            self._keep(saved)
        self._resumed = {resumed.id: resumed for resumed in rows.of(ResumedAttempt)}
        for number, resumed in self._resumed.items():
            self.state.attempts[number].done_before = resumed.work
        for account in rows.of(CheckpointAccount):
            self._accounts[account.id] = account
            self.state.attempts[account.id].kept_cpu_ms = account.kept_cpu_ms

    def handlers(self) -> Mapping[type, Handler]:
        return {CheckpointsRecalled: self._bring_back, JobRetried: self._end_retry}

    def parts(self) -> Mapping[str, Callable[[Worker, Any], None]]:
        return {"checkpoints": self._hear}

    def brings_news(self, worker: Worker, report: Report) -> bool:
        return report.checkpoints is not None

    def enters(self, job: Job) -> None:
        self._jobs.add(job.id)
        job.saved = None
        for task in [task for task in self._saved if task.job == job.id]:
            self._note_work(task)
        self.state.wings.arrange()

    def finish_step(self) -> None:
        """Forget jobs that have left memory, and fall asleep without any."""
        gone = {number for number in self._jobs if number not in self.state.jobs} - self._recalled
        if gone:
            self._jobs -= gone
            self._saved = {task: saved for task, saved in self._saved.items() if task.job in self._jobs}
            self._history.keep(self.state.workers)
            if not self._jobs:
                self.state.wings.arrange()

    def most_waiting(self, job: Job, worker: Worker) -> float:
        """Return 0 for a job that takes checkpoints: a task that waits would miss the newer ones."""
        return 0 if job.spec.checkpoint else super().most_waiting(job, worker)

    # Checkpoints that are taken.

    def _hear(self, worker: Worker, told: CheckpointReport) -> None:
        """Take in the checkpoints of a Report, which may repeat some."""
        self._note_spoilt(worker, told.spoilt)
        for refused in told.refused:
            if self._is_on(worker, refused.attempt):
                self.refused[refused.attempt] = refused.reason
        for taken in told.taken:
            if not self._is_on(worker, taken.attempt):
                continue
            self.refused.pop(taken.attempt, None)
            attempt = self.state.attempts[taken.attempt]
            job, task = self.state.jobs[attempt.job], self.state.tasks[attempt.task_id]
            if job.spec.checkpoint and task.is_open:
                self.state.put(self._charge(attempt.id, taken))
                saved = self._keep_if_newer(job, task, worker, attempt, taken)
                if saved and saved in (start := self._start_of(job, task.number)):
                    self._count_kept(start)

    def _charge(self, attempt: AttemptId, taken: TakenCheckpoint) -> CheckpointAccount:
        """Enter the costs that a worker reports into the attempt's account."""
        account, costs = self._accounts.get(attempt) or CheckpointAccount(*attempt), taken.costs
        if costs.sent > account.sent:
            notice = CheckpointCosts(
                costs.sent - account.sent,
                max(0, costs.sent_bytes - account.sent_bytes),
                max(0.0, costs.held_s - account.held_s),
            )
            self.state.effects.tell(notice)
            account.sent, account.sent_bytes, account.held_s = costs.sent, costs.sent_bytes, costs.held_s
        return account

    def _count_kept(self, start: Sequence[SavedCheckpoint]) -> None:
        """Count the CPU time of attempts that a new attempt at the task need not spend."""
        for saved in start:
            number = AttemptId(saved.job, saved.task, saved.attempt)
            if account := self._accounts.get(number):
                before = self._resumed.get(number)
                account.kept_cpu_ms = measure.ms_of(max(0.0, saved.cpu_s - (before.cpu_s if before else 0.0)))
                self.state.put(account)

    def _keep_if_newer(
        self, job: Job, task: Task, worker: Worker, attempt: Attempt, taken: TakenCheckpoint
    ) -> SavedCheckpoint | None:
        """Keep a checkpoint and return it, unless one with as much work is known.

        Its work is counted from the attempt's checkpoint before it, so that it contains more than that one, also if
        the worker has since proved slower.
        """
        own = (one for one in reversed(self.of(task.id)) if one.attempt == attempt.number)
        before = next(own, None) or self._resumed.get(attempt.id)
        began_at = attempt.dispatched_at if task.started_at is None else task.started_at
        most_s = max(0.0, self.state.now - began_at)  # an upper bound
        cpu_s, wall_s = min(taken.cpu_s, most_s * worker.facts.cpus), min(taken.wall_s, most_s)
        work, measured_s = (before.work, before.cpu_s) if before else (0.0, 0.0)
        portable = job.spec.checkpoint and job.spec.checkpoint.portable
        saved = SavedCheckpoint(
            job.id,
            task.number,
            taken.manifest,
            attempt=attempt.number,
            worker=worker.name,
            line=tuple(dict.fromkeys((*taken.line, worker.name)))[-MAX_LINE:],
            taken_at=self.state.now,
            work=work + max(0.0, cpu_s - measured_s) * measure.speed_of(worker),
            cpu_s=cpu_s,
            wall_s=wall_s,
            times=taken.times,
            size_bytes=taken.size_bytes,
            sent_bytes=taken.sent_bytes,
            system="" if portable else _system_of(worker.facts),
            progress=taken.progress,
            step=taken.step if job.nodes > 1 else None,
        )
        known = self.of(task.id)
        if job.nodes > 1:
            if not gang_checkpoints.is_news(saved, known):
                return None
        elif known and _rank(saved) <= _rank(known[-1]):
            return None
        before_it = self._start_of(job, task.number)
        self.state.put(saved)
        self._trim(job, task.id, KEPT)
        has_advanced = job.nodes == 1 or self._start_of(job, task.number) != before_it
        if task.took_down and has_advanced:  # earlier deaths of agents no longer count
            task.took_down = ()
            self.state.put(task)
        return saved

    def _note_account(self, account: CheckpointAccount) -> None:
        self._accounts[account.id] = account
        self.state.effects.note(account.id, account)
        self.state.attempts[account.id].kept_cpu_ms = account.kept_cpu_ms

    def _note_saved(self, saved: SavedCheckpoint) -> None:
        self._keep(saved)
        self.state.effects.note(saved.key, saved)

    def _keep(self, saved: SavedCheckpoint) -> None:
        others = (one for one in self._saved.get(saved.task_id, ()) if one.manifest != saved.manifest)
        self._saved[saved.task_id] = sorted((*others, saved), key=_rank)
        self._note_work(saved.task_id)

    def _trim(self, job: Job, task: TaskId, kept: int) -> None:
        """Remove all but the newest checkpoints of a task, or of each member of a gang."""
        start = self._start_of(job, task.task) if kept else ()
        known = self._saved.pop(task, [])
        if job.nodes > 1:
            rest = gang_checkpoints.worth_keeping(known, start, self.state.attempts, kept if kept > 1 else 0)
        else:
            rest = known[len(known) - kept :] if kept else []
        for saved in known:
            if saved not in rest:
                self.state.effects.drop(SavedCheckpoint, saved.key)
        if rest:
            self._saved[task] = rest
        self._note_work(task)

    def _note_work(self, task: TaskId) -> None:
        """Note on the job the work that a new attempt at the task can skip: nothing once the task is over."""
        job, known = self.state.jobs.get(task.job), self.state.tasks.get(task)
        if job is None:
            return
        is_open = known.is_open if known else task.task in self.state.fresh[job.id]
        if is_open and (start := self._start_of(job, task.task)):
            job.saved = job.saved or {}
            progress = min(saved.progress or 0.0 for saved in start)
            job.saved[task.task] = sum(saved.work for saved in start), progress
        elif job.saved:
            job.saved.pop(task.task, None)

    def _start_of(self, job: Job, number: int) -> Sequence[SavedCheckpoint]:
        """Return the newest usable checkpoint of a task: of a gang, that of each member; empty: there is none."""
        known = self.of(job.task_id(number))
        if job.nodes > 1:
            whole = (cut for cut in reversed(gang_checkpoints.cuts(known, job.nodes)) if all(map(_is_usable, cut)))
            return next(whole, ())
        return known[-1:] if known and _is_usable(known[-1]) else ()

    def task_ended(self, job: Job, task: Task) -> None:
        """Remove the checkpoints of a task that is over, but for one if it may be retried."""
        self._trim(job, task.id, 0 if task.state is TaskState.SUCCEEDED else 1)
        if task.state is TaskState.SUCCEEDED:
            for attempt in self.state.index.attempts.of_task.get(task.id, {}).values():
                if (account := self._accounts.get(attempt.id)) is None:
                    continue
                has_won = launch_of(attempt.id, job.nodes).number == task.winner
                account.kept_cpu_ms = 0 if has_won else account.passed_cpu_ms
                self.state.put(account)

    def _bring_back(self, event: CheckpointsRecalled, tell: Tell) -> None:
        """Take in the checkpoints of a job that is about to be retried, or remove them."""
        for saved in event.checkpoints:
            if event.is_dropped:
                self.state.effects.drop(SavedCheckpoint, saved.key)
            else:
                self._keep(saved)
        if not event.is_dropped:
            self._jobs.add(event.job)
            self._recalled.add(event.job)
            self.state.wings.arrange()

    def _end_retry(self, event: JobRetried, tell: Tell) -> None:
        """Keep recalled checkpoints only if the job is in the grid: its retry may have been declined."""
        self._recalled.discard(event.job.id)

    # Attempts that continue from one.

    def begins(self, job: Job, attempt: AttemptId, worker: Worker) -> float:
        """Choose the checkpoint that a new attempt continues from. Return the work in it."""
        known = self.of(attempt.task_id) if job.spec.checkpoint else ()
        if known and job.nodes > 1:
            self._begin_member(job, attempt, worker)
            return 0.0
        saved = next((one for one in reversed(known) if self._may_use(job, one, worker)), None)
        if saved is None:
            return 0.0
        self._resume(attempt, saved)
        return saved.work

    def _begin_member(self, job: Job, member: AttemptId, worker: Worker) -> None:
        """Choose the cut that a launch continues from, as its last member is dispatched."""
        launch = launch_of(member, job.nodes)
        if member.number - launch.number < job.nodes - 1:
            return
        others = [self.state.attempts[launch._replace(number=one)] for one in range(launch.number, member.number)]
        workers = [*(self.state.workers[other.worker] for other in others), worker]
        for cut in reversed(gang_checkpoints.cuts(self.of(member.task_id), job.nodes)):
            if all(map(self._may_use, repeat(job), cut, workers)):
                for other, saved in zip(others, cut, strict=False):
                    self._resume(other.id, saved)
                    other.done_before = saved.work
                self._resume(member, cut[-1])
                return

    def _resume(self, attempt: AttemptId, saved: SavedCheckpoint) -> None:
        """Have a new attempt continue from a checkpoint."""
        if account := self._accounts.get(AttemptId(saved.job, saved.task, saved.attempt)):
            account.passed_cpu_ms = account.kept_cpu_ms
            self.state.put(account)
        self.state.put(
            ResumedAttempt(
                *attempt,
                manifest=saved.manifest,
                line=saved.line,
                work=saved.work,
                cpu_s=saved.cpu_s,
                wall_s=saved.wall_s,
                times=saved.times + 1,
                progress=saved.progress,
            )
        )

    def _may_use(self, job: Job, saved: SavedCheckpoint, worker: Worker) -> bool:
        if not _is_usable(saved) or (saved.system and saved.system != _system_of(worker.facts)):
            return False
        others = [name for name in saved.line if name != worker.name]
        if job.quorum is not None:
            return not others
        return not any(self._is_in_quarantine(name) for name in others)

    def _is_in_quarantine(self, name: str) -> bool:
        worker = self.state.workers.get(name)
        return worker is not None and worker.quarantined_until is not None

    def _note_resumed(self, resumed: ResumedAttempt) -> None:
        self._resumed[resumed.id] = resumed
        self.state.effects.note(resumed.id, resumed)

    def of(self, task: TaskId) -> Sequence[SavedCheckpoint]:
        """Return the checkpoints of a task, the newest last."""
        return self._saved.get(task, ())

    def of_live_jobs(self) -> dict[TaskId, list[SavedCheckpoint]]:
        """Return the checkpoints of all tasks of jobs in the grid."""
        return {task: saved for task, saved in self._saved.items() if self.state.jobs[task.job].is_live}

    def attempt_ended(
        self, job: Job, task: Task, attempt: Attempt, took_down: bool, is_slow: bool
    ) -> Iterable[Worker]:
        """Count a failure against the checkpoint that the attempt has continued from, unless it took a newer one."""
        if attempt.state is AttemptState.FAILED:
            self._blame(attempt)
        return ()

    def _note_spoilt(self, worker: Worker, told: Iterable[AttemptId]) -> None:
        """Count attempts that could not continue because files of their checkpoints are missing or damaged."""
        for number in told:
            if self._is_on(worker, number):
                self._blame(self.state.attempts[number])

    def _is_on(self, worker: Worker, number: AttemptId) -> bool:
        attempt = self.state.attempts.get(number)
        return attempt is not None and attempt.worker == worker.name

    def _blame(self, attempt: Attempt) -> None:
        """Count a failure against the checkpoint that an attempt has continued from, unless it took a newer one."""
        resumed, known = self._resumed.get(attempt.id), self.of(attempt.task_id)
        if resumed is None or any(one.attempt == attempt.number for one in known):
            return
        for saved in known:
            if saved.manifest == resumed.manifest:
                self.state.put(replace(saved, failed_on=(*saved.failed_on, attempt.worker)))

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        if attempt.job in self._jobs and (spec := self.state.jobs[attempt.job].spec.checkpoint):
            worker, is_gang = self.state.workers[attempt.worker], self.state.jobs[attempt.job].nodes > 1
            stops_itself = spec.exit_code is not None or is_gang  # or another member's interruption has ended it
            self._history.follow(attempt, worker, self.state.now, stops_itself=stops_itself)
        if not after:
            self._resumed.pop(attempt.id, None)
            self._accounts.pop(attempt.id, None)
            self.refused.pop(attempt.id, None)
        elif not before and (resumed := self._resumed.get(attempt.id)):
            attempt.done_before = resumed.work

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Add each new attempt's checkpoint order."""
        for run in assign.run:
            spec = self.state.jobs[run.attempt.job].spec.checkpoint
            if spec is None:
                continue
            resumed = self._resumed.get(run.attempt)
            stopped_every_s, lost_every_s = self._history.means_s(worker.name, self.state.now)
            if run.gang:  # any interruption of any member ends the launch
                nodes = self.state.jobs[run.attempt.job].nodes
                lost_every_s = stopped_every_s = 1 / (1 / stopped_every_s + 1 / lost_every_s) / nodes
            run.checkpoint = CheckpointOrder(
                spec.every_s,
                stopped_every_s,
                lost_every_s,
                exit_code=spec.exit_code,
                max_bytes=spec.max_bytes or DEFAULT_CHECKPOINT_BYTES,
                resume=None if resumed is None else resumed.as_told(),
                own=run.gang is None,
            )

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if a task has too many checkpoints, or they are out of order."""
        for task, saved in self._saved.items() if of is None else ():
            job = self.state.jobs.get(task.job)
            members = {one.attempt for one in saved}
            most = (KEPT + 1 + MAX_STEP.bit_length()) * len(members) if job and job.nodes > 1 else KEPT
            assert job is None or len(saved) <= most, f"task {task} keeps {len(saved)} checkpoints"
            assert [*saved] == sorted(saved, key=_rank), f"task {task}: out of order"


def _rank(saved: SavedCheckpoint) -> tuple[bool, float, float]:
    """Return the sort key of a task's checkpoints: usable ones last, then by work, then by time; of gangs by step.

    A task that sleeps does no work, but has run longer. One that may be what makes attempts fail must not keep newer
    ones with less work away.
    """
    if saved.step is not None:
        return True, saved.attempt, saved.step
    return _is_usable(saved), saved.work, saved.wall_s


def _is_usable(saved: SavedCheckpoint) -> bool:
    return len(saved.failed_on) < MOST_FAILED


def _system_of(facts: Facts) -> str:
    """Return where a checkpoint that was taken on such a computer can be used.

    All attempts at a function run under the Python version that pickled it, as its job requires.
    """
    return f"{facts.os} {facts.arch}"
