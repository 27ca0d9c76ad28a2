"""The wing *trust*.

**Quorum.** Results of one task from different workers are compared, whether or not its job has a quorum. A task of a
job with a quorum succeeds when that number of workers agree. The digests are kept on the task as votes, so that a
restart changes nothing. Each vote against the majority counts like a failure of the task.

**Quarantine.** A worker whose attempts fail where others succeed gets no new work for a while. The health of a worker
(``Worker.health``) falls by a half if a task fails on it whose program has succeeded on others, by another half if
that very task then succeeds on one of them, and by one if a task took it far longer than others. It rises by a half
with each success, and by a half for each task that fails on others as well, because then the task is at fault. At the
bottom the worker goes into quarantine (``quarantined_until``), for twice as long each time. It comes back by itself:
half-open (``half_open``), with one attempt at a time, until one has succeeded. After some more successes the next
quarantine is shorter again. The worker still gets jobs that no other could run (requirements.py). A task that failed
on an unhealthy worker is tried elsewhere next (View.should_go_elsewhere), so that one broken computer does not use up
all of its attempts.

**Downfalls.** A task may be the cause if its agent, supervisor or sandbox ends while it runs, or if its computer
cannot run it or keep its output. Such an end uses up none of the task's ``max_attempts``, because the task may not be
the cause. But a task that takes down every agent would be retried for ever, so the task fails after three such ends
on at least two workers, or on the only worker for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile

from loopline_master.core.estimates import measure
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import MAX_TAKEN_DOWN, Attempt, Job, Task, Vote, Worker
from loopline_master.core.kernel.index.sorted_collections import Ranking
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_shared.model import AttemptState, Output, Quarantine, TaskId, TaskState
from loopline_shared.protocol.worker_link import Assign, Report
from loopline_shared.spec import JobSpec

BOTTOM, TOP = -3.0, 2.0
_HALF = 0.5
_MOST_PLACES = 16
_MOST_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Notice of a task with two differing results."""

    task: TaskId


class Trust(Wing):
    """Always awake. Votes, health and quarantines are fields of tasks and workers."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.quarantines: Ranking[str, tuple[float, str]] = Ranking()
        """(until, worker)"""

    def restore(self, rows: Rows) -> None:
        for worker in rows.workers:
            self._place(worker)

    # Quarantines end by themselves.

    def due_at(self) -> float | None:
        return self.quarantines.order[0][0] if self.quarantines.order else None

    def expire(self) -> None:
        """Let workers come back from quarantine, half-open, when their time is over."""
        for _, name in list(takewhile(lambda one: one[0] <= self.state.now, self.quarantines.order)):
            worker = self.state.workers[name]
            worker.quarantined_until, worker.half_open = None, True
            self._place(worker)
            self.state.put(worker)

    def finish_step(self) -> None:
        for name in self.state.effects.gone:
            self.quarantines.place(name, None)

    def _place(self, worker: Worker) -> None:
        until, name = worker.quarantined_until, worker.name
        self.quarantines.place(name, (until, name) if until is not None else None)

    # Reports and Assigns.

    def brings_news(self, worker: Worker, report: Report) -> bool:
        """True in quarantine: every Assign repeats the notice to the owner."""
        return worker.quarantined_until is not None

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Add the notice of a quarantine for the computer's owner; every frame repeats it, in case one is lost."""
        if worker.quarantined_until is not None:
            assign.quarantine = Quarantine(worker.quarantined_until, worker.quarantine_reason)

    def accuse(self, worker: Worker, reason: str) -> None:
        for quarantined in self._quarantine(worker, reason):
            lifecycle.retract_from(self.state, quarantined, lifecycle.IN_QUARANTINE)

    # Results.

    def attempt_ended(
        self, job: Job, task: Task, attempt: Attempt, took_down: bool, is_slow: bool
    ) -> Iterable[Worker]:
        if not task.is_open:
            if attempt.state is AttemptState.SUCCEEDED:
                self._compare_late(job, task, attempt)
        elif attempt.accepted:
            blamed = self._judge_success(attempt, task, is_slow=is_slow)
            return blamed + self._judge_votes(task) if task.votes and job.nodes == 1 else blamed
        elif attempt.state is AttemptState.FAILED:
            return self._blame_for_failure(attempt, task)
        elif took_down:
            task.took_down = (*task.took_down, attempt.worker)[-_MOST_PLACES:]
        return ()

    def verdict(self, job: Job, task: Task) -> str | None:
        if self._takes_all_down(job, task):
            return downfall_verdict(task)
        return quorum_verdict(job, task) if task.setbacks >= job.max_attempts else None

    def check(self, of: Job | Worker | None) -> None:
        if isinstance(of, Job):
            return
        workers = [of] if of is not None else self.state.workers.values()
        for worker in workers:
            _check_quarantine(self.state.now, worker)
            until = worker.quarantined_until
            placed, expected = self.quarantines.keys.get(worker.name), (until, worker.name)
            assert placed == (None if until is None else expected), f"{worker.name} is ranked as {placed}"

    def decides(self, job: Job, task: Task, attempt: Attempt) -> bool:
        """Count a result. Return True if it decides its task."""
        if job.quorum is None:
            if len(self.state.index.attempts.of_task[task.id]) > 1:  # their results will be compared with it
                task.votes = (Vote(attempt.number, attempt.worker, _digest_of(job.spec, attempt), 0),)
            return True
        digest = _digest_of(job.spec, attempt)
        task.votes += (Vote(attempt.number, attempt.worker, digest, measure.account_vote(job, attempt)),)
        if len({vote.digest for vote in task.votes}) > 1:
            self._mark_mismatch(job, task, ())
        is_reached = len({vote.worker for vote in task.votes if vote.digest == digest}) >= job.quorum
        if is_reached and measure.is_extra(attempt):
            job.won_cpu_ms += task.votes[-1].cpu_ms
        return is_reached

    def task_ended(self, job: Job, task: Task) -> None:
        """Account for the votes of a task that is over, and mark the workers whose results were outvoted."""
        if not task.votes or job.quorum is None:
            return
        winning = next((vote.digest for vote in task.votes if vote.attempt == task.winner), None)
        for vote in task.votes:
            if winning is None:
                job.lost_cpu_ms += vote.cpu_ms
            elif vote.digest == winning:
                job.useful_cpu_ms += vote.cpu_ms
            else:
                job.wasted_cpu_ms += vote.cpu_ms
        if task.mismatch:
            self._mark_mismatch(job, task, [vote.worker for vote in task.votes if vote.digest != winning])

    def _compare_late(self, job: Job, task: Task, attempt: Attempt) -> None:
        """Compare a result that came after its task had succeeded with the accepted one.

        If they differ and there was no quorum, either may be wrong: both workers are marked.
        """
        accepted = next((vote for vote in task.votes if vote.attempt == task.winner), None)
        if task.state is not TaskState.SUCCEEDED or accepted is None:
            return
        if _digest_of(job.spec, attempt) != accepted.digest:
            is_new = not task.mismatch and job.quorum is None
            self._mark_mismatch(job, task, [attempt.worker, accepted.worker] if is_new else [attempt.worker])

    def _blame_for_failure(self, attempt: Attempt, task: Task) -> list[Worker]:
        """Count a failure that seems to be the task's own fault. Return the workers now in quarantine."""
        places = [name for name in task.failed_on if name != attempt.worker]
        task.failed_on = (*places, attempt.worker)[-_MOST_PLACES:]
        for worker in self._known(places):
            if worker.health < 0:
                self._raise(worker)
        job = self.state.jobs[attempt.job]
        program = self.state.programs.get(job.program)
        if places or program is None or all(run.worker == attempt.worker for run in program.window):
            return []
        said = f"task {task.id} failed there, while tasks like it succeed elsewhere"
        return self._blame(self.state.workers[attempt.worker], said, _HALF)

    def _judge_success(self, attempt: Attempt, task: Task, *, is_slow: bool) -> list[Worker]:
        """Judge the worker of an accepted result. Return the workers now in quarantine.

        ``is_slow``: the worker was far slower than others would have been.
        """
        worker, here = self.state.workers[attempt.worker], attempt.worker
        if is_slow:
            said = f"task {task.id} took it {attempt.wall_s:.3g} s, far longer than it would have taken others"
            return self._blame(worker, said, 2 * _HALF)
        self._praise(worker)
        if not task.failed_on:
            return []
        said = f"task {task.id} failed there, and then succeeded on {here}"
        places = self._known(name for name in task.failed_on if name != here)
        return [blamed for place in places for blamed in self._blame(place, said, _HALF)]

    def _judge_votes(self, task: Task) -> list[Worker]:
        """Praise the workers that agreed with the quorum, and blame the outvoted ones.

        Return the workers now in quarantine.
        """
        accepted = next((vote.digest for vote in task.votes if vote.attempt == task.winner), None)
        blamed: list[Worker] = []
        for vote in task.votes:
            worker = self.state.workers.get(vote.worker)
            if worker is None or vote.attempt == task.winner:
                continue  # the worker was forgotten, or has been praised already
            if vote.digest == accepted:
                self._praise(worker)
            else:
                said = f"its result of task {task.id} differs from those that agree"
                blamed += self._blame(worker, said, _HALF)
        return blamed

    def _mark_mismatch(self, job: Job, task: Task, workers: Iterable[str]) -> None:
        """Mark the task's results as differing, and count a mismatch for each of these workers."""
        if not task.mismatch:
            task.mismatch = True
            job.mismatches += 1
            self.state.effects.tell(Mismatch(task.id))
            self.state.put(task, job)
        for worker in self._known(workers):
            worker.mismatches += 1
            self.state.put(worker)

    def _known(self, names: Iterable[str]) -> list[Worker]:
        """Return the workers of these names that are not forgotten."""
        return [self.state.workers[name] for name in names if name in self.state.workers]

    def _praise(self, worker: Worker) -> None:
        """Count a success, except in quarantine, as the attempt began before it."""
        if worker.quarantined_until is not None or (worker.health == TOP and not worker.half_open):
            return
        self._raise(worker)
        if worker.half_open:
            worker.half_open = False
            self.state.put(worker)
        if worker.health == TOP and worker.quarantines:
            worker.quarantines, worker.health = worker.quarantines - 1, 0.0

    def _raise(self, worker: Worker) -> None:
        worker.health = min(TOP, worker.health + _HALF)
        self.state.put(worker)

    def _blame(self, worker: Worker, reason: str, weight: float) -> list[Worker]:
        """Count a fault. Return the worker if this has put it into quarantine."""
        if worker.quarantined_until is not None or not self.state.settings.quarantine_s:
            return []
        worker.health -= weight
        self.state.put(worker)
        if worker.health > BOTTOM and not worker.half_open:
            return []
        return self._quarantine(worker, reason)

    def _quarantine(self, worker: Worker, reason: str) -> list[Worker]:
        """Put a worker into quarantine, at any health. Return it; empty if it is in one, or quarantines are off."""
        if worker.quarantined_until is not None or not self.state.settings.quarantine_s:
            return []
        length_s = self.state.settings.quarantine_s * 2.0 ** min(worker.quarantines, _MOST_DOUBLINGS)
        worker.quarantined_until = self.state.now + min(length_s, self.state.settings.max_quarantine_s)
        worker.quarantine_reason, worker.quarantines = reason[:500], worker.quarantines + 1
        worker.health, worker.half_open = 0.0, False
        self._place(worker)
        self.state.put(worker)
        return [worker]

    def _takes_all_down(self, job: Job, task: Task) -> bool:
        """True if the task must fail because it has taken down its agent or sandbox too often."""
        if len(task.took_down) < MAX_TAKEN_DOWN:
            return False
        requirements = self.state.index.requirements
        return task.is_dangerous or requirements.able.get(requirements.key_of(job), set()) <= set(task.took_down)


def quorum_verdict(job: Job, task: Task) -> str:
    """Return the reason why a task with disagreeing results failed; empty if it has no votes."""
    if not task.votes:
        return ""
    return f"of {len(task.votes)} results, {task.agreeing} agree: the job's quorum is {job.quorum}"


def downfall_verdict(task: Task) -> str:
    """Return the reason shown to users; empty if the task took down no agent or sandbox."""
    times = len(task.took_down)
    return f"took its worker or its sandbox down {times} time{'' if times == 1 else 's'}" if times else ""


def _digest_of(spec: JobSpec, attempt: Attempt) -> str:
    """Return the digest of the output files and the return value, if the job declares any; else of stdout."""
    if spec.outputs or spec.function:
        parts = [f"{file.path}\0{file.sha256}" for file in sorted(attempt.outputs or (), key=lambda file: file.path)]
        parts += [_of_output(attempt.value)] if attempt.value is not None else []
    else:
        parts = [_of_output(attempt.stdout or Output())]
    return sha256("\n".join(parts).encode()).hexdigest()


def _of_output(output: Output) -> str:
    """Return size and hash, which are equal for the same bytes inside the result and in a file."""
    return f"{output.size_bytes} {output.sha256 or sha256(output.data).hexdigest()}"


def _check_quarantine(now: float, worker: Worker) -> None:
    """Raises AssertionError if a worker's health and its quarantine contradict one another."""
    barred, name = worker.quarantined_until is not None, worker.name
    assert not (barred and worker.half_open), f"worker {name} is in quarantine and half-open"
    assert worker.quarantines > 0 or not barred, f"worker {name} is in quarantine for the 0th time"
    assert BOTTOM < worker.health <= TOP, f"worker {name} has health {worker.health}"
    is_due = worker.quarantined_until is not None and worker.quarantined_until <= now
    assert not is_due, f"worker {name} should be back from quarantine"
