"""Quarantine: a worker whose attempts fail where others succeed gets nothing new for a while.

The health of a worker (``Worker.standing``) falls by a half if a task fails on it whose program has succeeded on
others, by another half if that very task then succeeds on one of them, and by one if a task took it far longer than
others. It rises by a half with each success, and by a half for each task that fails on others as well: then the task
is at fault. At the bottom the worker goes into quarantine (``probation_until``), for twice as long each time. It
comes back by itself: half-open (``on_trial``), with one attempt at a time, until it has succeeded with one. After
some more successes the next quarantine is shorter again.

The worker still gets jobs that no other could run (requirements.py). A task that failed on an unhealthy worker is
tried elsewhere next (View.should_go_elsewhere), lest one broken computer use up all of its attempts.
"""

from __future__ import annotations

from itertools import takewhile

from loopline_master.core.entities import Attempt, Task, Worker
from loopline_master.core.state import State

BOTTOM, TOP = -3.0, 2.0
_HALF = 0.5
_MOST_PLACES = 16
_MOST_DOUBLINGS = 32


def failed(state: State, attempt: Attempt, task: Task) -> list[Worker]:
    """Take in that an attempt failed by its task's own doing, it seems. Return the workers now in quarantine."""
    places = [name for name in task.failed_on if name != attempt.worker]
    task.failed_on = (*places, attempt.worker)[-_MOST_PLACES:]
    for name in places:
        if state.workers[name].standing < 0:
            _raise(state, state.workers[name])
    job = state.jobs[attempt.job]
    program = state.programs.get(job.program)
    if places or program is None or all(run.worker == attempt.worker for run in program.window):
        return []
    said = f"task {task.id} failed there, while tasks like it succeed elsewhere"
    return _blame(state, state.workers[attempt.worker], said, _HALF)


def succeeded(state: State, attempt: Attempt, task: Task, *, is_slow: bool) -> list[Worker]:
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
    places = [state.workers[name] for name in task.failed_on if name != here]
    return [blamed for place in places for blamed in _blame(state, place, said, _HALF)]


def voted(state: State, task: Task) -> list[Worker]:
    """Praise the workers that agreed with the quorum, and blame those that were outvoted.

    Return the workers now in quarantine.
    """
    accepted = next((vote.digest for vote in task.votes if vote.attempt == task.winner), None)
    blamed: list[Worker] = []
    for vote in task.votes:
        if vote.attempt != task.winner and vote.digest == accepted:
            _praise(state, state.workers[vote.worker])
        elif vote.attempt != task.winner:
            said = f"its result of task {task.id} differs from those that agree"
            blamed += _blame(state, state.workers[vote.worker], said, _HALF)
    return blamed


def expire(state: State) -> None:
    """Let workers come back from quarantine, half-open, when their time is over."""
    for _, name in takewhile(lambda probation: probation[0] <= state.now, state.index.probations.order):
        worker = state.workers[name]
        worker.probation_until, worker.on_trial = None, True
        state.put(worker)


def _praise(state: State, worker: Worker) -> None:
    """Count a success; during quarantine it does not count, for the attempt had begun before."""
    if worker.probation_until is not None or (worker.standing == TOP and not worker.on_trial):
        return
    _raise(state, worker)
    if worker.on_trial:
        worker.on_trial = False
        state.put(worker)
    if worker.standing == TOP and worker.probations:
        worker.probations, worker.standing = worker.probations - 1, 0.0


def _raise(state: State, worker: Worker) -> None:
    worker.standing = min(TOP, worker.standing + _HALF)
    state.put(worker)


def _blame(state: State, worker: Worker, reason: str, weight: float) -> list[Worker]:
    """Count a fault. Return the worker if that has put it into quarantine."""
    if worker.probation_until is not None or not state.settings.probation_s:
        return []
    worker.standing -= weight
    state.put(worker)
    if worker.standing > BOTTOM and not worker.on_trial:
        return []
    length_s = state.settings.probation_s * 2.0 ** min(worker.probations, _MOST_DOUBLINGS)
    worker.probation_until = state.now + min(length_s, state.settings.max_probation_s)
    worker.probation_reason, worker.probations = reason[:500], worker.probations + 1
    worker.standing, worker.on_trial = 0.0, False
    state.put(worker)
    return [worker]
