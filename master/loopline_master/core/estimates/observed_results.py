"""Learning from the results of attempts: a program's work, a worker's speed, and how good expectations are."""

from __future__ import annotations

from math import inf

from loopline_master.core.estimates import measure, program_history
from loopline_master.core.kernel.entities import Attempt, Job, Program, Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptState

_RESULTS = (AttemptState.SUCCEEDED, AttemptState.FAILED)
_TOLERANCE, _NOISE_S = 2.0, 0.05
"""An attempt takes longer than expected if it takes more than ``_TOLERANCE`` times as long, plus the noise of a
start."""
_FAR_SHORTER = 64.0
"""An attempt that takes this many times less than expected disproves the size of its job's tasks: no computer is as
much faster than it was believed to be."""


def longest_expected_s(attempt: Attempt) -> float:
    """Return the longest run time of the attempt, in seconds, that confirms its expectation."""
    return _TOLERANCE * attempt.expected_s + _NOISE_S


def compare_run_time(state: State, job: Job, attempt: Attempt) -> bool:
    """Compare the run time of an attempt that has ended with the expected one, and count it for its job.

    Return True if it took longer.
    """
    if attempt.wall_s > longest_expected_s(attempt):
        measure.note_longer(job, measure.work_done(state.workers[attempt.worker], attempt))
        return True
    if attempt.state in _RESULTS:
        job.confirmed += 1
        if not job.longest and attempt.wall_s * _FAR_SHORTER < attempt.expected_s:
            job.longest = measure.work_done(state.workers[attempt.worker], attempt)
    return False


def learn(state: State, job: Job, attempt: Attempt) -> bool:
    """Learn from the accepted result of a task, and advance virtual time by the work done.

    Return True if the worker was far slower than others. Its job is then charged only the work that the others' runs
    suggest: a worker that overstates its speed also overstates its work.
    """
    grid, worker, size = state.grid, state.workers[attempt.worker], job.sweep.size_at(attempt.task)
    attempt.work = work = measure.work_done(worker, attempt)
    if attempt.done_before:  # a remainder teaches nothing about whole tasks on this worker
        _count_work(state, job, worker, work, size, attempt.done_before)
        return False
    program = state.programs.get(job.program)
    if program is None:
        program = Program(*job.program, first_run_at=grid.now, used_at=grid.now)
    is_news = program_history.is_news(program, grid.now)
    most = _learn_of_program(state, program, job, attempt, is_news=is_news)
    _count_work(state, job, worker, min(work, most), size)
    if measure.may_teach(worker, attempt, is_news=is_news):
        expected = program_history.expected_work(program, size)
        if expected is not None:
            measure.learn_speed(worker, attempt, expected)  # the worker is put as its Report is processed
    return most < inf


def _count_work(state: State, job: Job, worker: Worker, work: float, size: float | None, kept: float = 0.0) -> None:
    """Count the work of a task that has succeeded, and advance virtual time by it.

    ``size``: as its user gave it. ``kept``: work in the checkpoint that the attempt resumed, which no result proves.
    """
    grid = state.grid
    job.counted += measure.credible_work(worker, work)
    work += kept
    measure.learn_duration(job, work, size)
    size_done = work if size is None else size
    job.work_done += size_done
    job.used += work
    grid.work_accepted += work
    grid.tasks_accepted += 1
    grid.measured += size is not None
    grid.virtual = state.index.virtual_time.after(grid.virtual, size_done)


def _learn_of_program(state: State, program: Program, job: Job, attempt: Attempt, *, is_news: bool) -> float:
    """Return the limit of the attempt's work that others' runs suggest; infinity unless they were far faster."""
    now, worker, most = state.grid.now, state.workers[attempt.worker], inf
    if is_news or not program_history.is_usual(program, measure.most_shown(worker, attempt)):
        seen = measure.observe(job, worker, attempt, now)
        most = program_history.most_by_others(program, seen)
    if is_news:
        program_history.learn(program, seen)
    else:
        program.runs += 1
    state.put(program)
    return most
