"""Trust: which results are believed, which workers get new tasks, and which tasks may no longer be tried.

**Quorum.** Results of one task from different workers are compared, for free or for a quorum's sake. A task of a job
with a quorum succeeds when so many workers agree; the digests seen are kept on the task as votes, so that a restart
changes nothing. Each vote against the majority counts like a failure of the task.

**Quarantine.** A worker whose attempts fail where others succeed gets nothing new for a while. The health of a worker
(``Worker.health``) falls by a half if a task fails on it whose program has succeeded on others, by another half if
that very task then succeeds on one of them, and by one if a task took it far longer than others. It rises by a half
with each success, and by a half for each task that fails on others as well: then the task is at fault. At the bottom
the worker goes into quarantine (``quarantined_until``), for twice as long each time. It comes back by itself: half-
open (``half_open``), with one attempt at a time, until it has succeeded with one. After some more successes the next
quarantine is shorter again. The worker still gets jobs that no other could run (requirements.py). A task that failed
on an unhealthy worker is tried elsewhere next (View.should_go_elsewhere), lest one broken computer use up all of its
attempts.

**Downfalls.** An agent, a supervisor or a sandbox that ends while a task runs may have ended by its doing, and so may
a computer that cannot run it or keep its output. Such an end uses up none of the task's ``max_attempts``, for it may
be no doing of the task's own. But a task that takes down every agent would be retried for ever, so after three
such ends on two workers at least, or on the only one there is for it, the task fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import takewhile

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import MAX_TAKEN_DOWN, Attempt, Job, Task, Vote, Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import Output, TaskState
from loopline_shared.spec import JobSpec

BOTTOM, TOP = -3.0, 2.0
_HALF = 0.5
_MOST_PLACES = 16
_MOST_DOUBLINGS = 32


def decides_task(state: State, job: Job, task: Task, attempt: Attempt) -> bool:
    """Count a result. Return True if it decides its task."""
    if job.quorum is None:
        if len(state.index.attempts.of_task[task.id]) > 1:  # what the others bring will be compared with it
            task.votes = (Vote(attempt.number, attempt.worker, _digest_of(job.spec, attempt), 0),)
        return True
    digest = _digest_of(job.spec, attempt)
    task.votes += (Vote(attempt.number, attempt.worker, digest, measure.account_vote(job, attempt)),)
    if len({vote.digest for vote in task.votes}) > 1:
        _mark_mismatch(state, job, task, ())
    is_reached = len({vote.worker for vote in task.votes if vote.digest == digest}) >= job.quorum
    if is_reached and measure.is_extra(attempt):
        job.won_cpu_ms += task.votes[-1].cpu_ms
    return is_reached


def settle_votes(state: State, job: Job, task: Task) -> None:
    """Account for the votes of a task that is over, and mark the workers whose results were outvoted."""
    if job.quorum is None:
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
        _mark_mismatch(state, job, task, [vote.worker for vote in task.votes if vote.digest != winning])


def compare_late_result(state: State, job: Job, task: Task, attempt: Attempt) -> None:
    """Compare a result that came after its task had succeeded with the accepted one.

    If they differ and there was no quorum, either may be wrong: both workers are marked.
    """
    accepted = next((vote for vote in task.votes if vote.attempt == task.winner), None)
    if task.state is not TaskState.SUCCEEDED or accepted is None:
        return
    if _digest_of(job.spec, attempt) != accepted.digest:
        is_new = not task.mismatch and job.quorum is None
        _mark_mismatch(state, job, task, [attempt.worker, accepted.worker] if is_new else [attempt.worker])


def quorum_verdict(job: Job, task: Task) -> str:
    """Return why a task failed whose results disagree; empty if it has no votes."""
    if not task.votes:
        return ""
    return f"of {len(task.votes)} results, {task.agreeing} agree: the job's quorum is {job.quorum}"


def _mark_mismatch(state: State, job: Job, task: Task, workers: Iterable[str]) -> None:
    """Mark the task as one whose results differ, and count a mismatch for each of these workers."""
    if not task.mismatch:
        task.mismatch = True
        job.mismatches += 1
        state.effects.mismatches.append(task.id)
        state.put(task, job)
    for worker in _known(state, workers):
        worker.mismatches += 1
        state.put(worker)


def _known(state: State, names: Iterable[str]) -> list[Worker]:
    """Return those of these workers that are not forgotten."""
    return [state.workers[name] for name in names if name in state.workers]


def _digest_of(spec: JobSpec, attempt: Attempt) -> str:
    """Return the digest of the output files and the return value, if the job declares any; else of stdout."""
    if spec.outputs or spec.function:
        parts = [f"{file.path}\0{file.sha256}" for file in sorted(attempt.outputs or (), key=lambda file: file.path)]
        parts += [_of_output(attempt.value)] if attempt.value is not None else []
    else:
        parts = [_of_output(attempt.stdout or Output())]
    return sha256("\n".join(parts).encode()).hexdigest()


def _of_output(output: Output) -> str:
    """Return size and hash, which are the same for bytes inside the result and in a file."""
    return f"{output.size_bytes} {output.sha256 or sha256(output.data).hexdigest()}"


def blame_for_failure(state: State, attempt: Attempt, task: Task) -> list[Worker]:
    """Take in that an attempt failed by its task's own doing, it seems. Return the workers now in quarantine."""
    places = [name for name in task.failed_on if name != attempt.worker]
    task.failed_on = (*places, attempt.worker)[-_MOST_PLACES:]
    for worker in _known(state, places):
        if worker.health < 0:
            _raise(state, worker)
    job = state.jobs[attempt.job]
    program = state.programs.get(job.program)
    if places or program is None or all(run.worker == attempt.worker for run in program.window):
        return []
    said = f"task {task.id} failed there, while tasks like it succeed elsewhere"
    return _blame(state, state.workers[attempt.worker], said, _HALF)


def judge_success(state: State, attempt: Attempt, task: Task, *, is_slow: bool) -> list[Worker]:
    """Take in the accepted result of a task. Return the workers now in quarantine.

    ``is_slow``: the worker was far slower than others would have been.
    """
    worker, here = state.workers[attempt.worker], attempt.worker
    if is_slow:
        said = f"task {task.id} took it {attempt.wall_s:.3g} s, far longer than it would have taken others"
        return _blame(state, worker, said, 2 * _HALF)
    _praise(state, worker)
    if not task.failed_on:
        return []
    said = f"task {task.id} failed there, and then succeeded on {here}"
    places = _known(state, (name for name in task.failed_on if name != here))
    return [blamed for place in places for blamed in _blame(state, place, said, _HALF)]


def judge_votes(state: State, task: Task) -> list[Worker]:
    """Praise the workers that agreed with the quorum, and blame those that were outvoted.

    Return the workers now in quarantine.
    """
    accepted = next((vote.digest for vote in task.votes if vote.attempt == task.winner), None)
    blamed: list[Worker] = []
    for vote in task.votes:
        worker = state.workers.get(vote.worker)
        if worker is None or vote.attempt == task.winner:
            continue  # it was forgotten, or has been praised already
        if vote.digest == accepted:
            _praise(state, worker)
        else:
            said = f"its result of task {task.id} differs from those that agree"
            blamed += _blame(state, worker, said, _HALF)
    return blamed


def end_quarantines(state: State) -> None:
    """Let workers come back from quarantine, half-open, when their time is over."""
    for _, name in takewhile(lambda quarantine: quarantine[0] <= state.now, state.index.quarantines.order):
        worker = state.workers[name]
        worker.quarantined_until, worker.half_open = None, True
        state.put(worker)


def _praise(state: State, worker: Worker) -> None:
    """Count a success; during quarantine it does not count, for the attempt had begun before."""
    if worker.quarantined_until is not None or (worker.health == TOP and not worker.half_open):
        return
    _raise(state, worker)
    if worker.half_open:
        worker.half_open = False
        state.put(worker)
    if worker.health == TOP and worker.quarantines:
        worker.quarantines, worker.health = worker.quarantines - 1, 0.0


def _raise(state: State, worker: Worker) -> None:
    worker.health = min(TOP, worker.health + _HALF)
    state.put(worker)


def _blame(state: State, worker: Worker, reason: str, weight: float) -> list[Worker]:
    """Count a fault. Return the worker if that has put it into quarantine."""
    if worker.quarantined_until is not None or not state.settings.quarantine_s:
        return []
    worker.health -= weight
    state.put(worker)
    if worker.health > BOTTOM and not worker.half_open:
        return []
    return quarantine(state, worker, reason)


def quarantine(state: State, worker: Worker, reason: str) -> list[Worker]:
    """Put a worker into quarantine, whatever its health. Return it; nobody if it is in one, or there are none."""
    if worker.quarantined_until is not None or not state.settings.quarantine_s:
        return []
    length_s = state.settings.quarantine_s * 2.0 ** min(worker.quarantines, _MOST_DOUBLINGS)
    worker.quarantined_until = state.now + min(length_s, state.settings.max_quarantine_s)
    worker.quarantine_reason, worker.quarantines = reason[:500], worker.quarantines + 1
    worker.health, worker.half_open = 0.0, False
    state.put(worker)
    return [worker]


def count_downfall(task: Task, attempt: Attempt) -> None:
    """Note that the attempt took down the agent or sandbox that ran it."""
    task.took_down = (*task.took_down, attempt.worker)[-_MOST_PLACES:]


def takes_all_down(state: State, job: Job, task: Task) -> bool:
    """True if the task has taken down its agent or sandbox too often, and has to fail."""
    if len(task.took_down) < MAX_TAKEN_DOWN:
        return False
    requirements = state.index.requirements
    return task.is_dangerous or requirements.able.get(requirements.key_of(job), set()) <= set(task.took_down)


def downfall_verdict(task: Task) -> str:
    """Return the reason to be shown to users; empty if nothing has ended with the task."""
    times = len(task.took_down)
    return f"took its worker or its sandbox down {times} time{'' if times == 1 else 's'}" if times else ""
