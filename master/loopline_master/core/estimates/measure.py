"""Speeds of workers, sizes of tasks and finish tags of jobs, measured on finished attempts.

A size that a user gave is used where there is one; nothing else is declared.
"""

from __future__ import annotations

import math

from loopline_master.core.entities import UNSEATED, Attempt, Grid, Job, Worker
from loopline_shared.model import Observation, SizeSource

_PRIOR_S = 50.0
"""A worker's benchmark counts as so many seconds of experience with it."""
_AGAIN = 1.1
_STEPS = 4
"""Steps within a factor of two in which ``grid.share`` is kept, so that it changes rarely."""
_CLEARLY = 0.75
_PROPORTION = 64.0
_MEMORY = 1000
"""So many attempts are remembered equally; older ones fade."""
_DEFAULT_WORK = 60.0
"""Reference CPU-seconds of a task in a grid that knows nothing yet."""
_SLOWEST, _FASTEST = 1e-6, 1e6
_SHORTEST_S = 1e-3
_LEAST_SHARE = 1 / 16
_NEARLY_ALL = 0.75
_LEVELS, _QUARTERS = 6, 4
LEAST_LEFT = 1 / _QUARTERS
"""Least share of each slot that an owner is taken to leave spare."""
_AS_GOOD_AS = 2
"""What was predicted of a job's tasks counts as much as so many of them that have finished."""


def speed_of(grid: Grid, worker: Worker) -> float:
    """Return the reference CPU-seconds that a slot of the worker delivers in a second it has to itself.

    It follows from the worker's finished attempts and its benchmark, scaled by ``grid.share``: the share that all
    benchmarks turned out to be worth.
    """
    speed = (worker.work_done + _PRIOR_S * worker.facts.speed * grid.share) / (worker.work_s + _PRIOR_S)
    return speed if _SLOWEST <= speed <= _FASTEST else _within(_SLOWEST, speed, _FASTEST)


def left_of(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """Return the seconds an attempt is expected to take still; for a late one, about as long again as it is late.

    (Exactly: were the attempt to end now, its worker would have shown itself slower than was thought; late is what
    it is over the time expected at *that* speed. So little experience with a worker makes for little haste.)
    """
    work, elapsed = work_of(grid, job, attempt.task), 0.0 if attempt.state in UNSEATED else grid.now - attempt.since
    left = work / speed_of(grid, worker) - elapsed
    if left >= 0:
        return left
    known = _known_work(grid, worker)
    return _AGAIN * -left * known / (known + work)


def late_from(grid: Grid, job: Job, worker: Worker, attempt: Attempt, left_s: float) -> float:
    """Return the time from which a seated attempt is so late that ``left_of`` is at least ``left_s``."""
    work, known = work_of(grid, job, attempt.task), _known_work(grid, worker)
    return attempt.since + work / speed_of(grid, worker) + left_s * (known + work) / (_AGAIN * known)


def work_of(grid: Grid, job: Job, number: int) -> float:
    """Return the size of a task in reference CPU-seconds: as given, else from prediction and finished tasks."""
    size = job.sweep.size_at(number)
    if size is not None:
        return size
    if job.predicted is not None:
        known = _AS_GOOD_AS * job.predicted.mean + job.work_done
        return known / (_AS_GOOD_AS + job.succeeded)
    return job.work_done / job.succeeded if job.succeeded else _mean_work(grid)


def is_known(job: Job, number: int) -> bool:
    """True if a task's size was given or predicted, or if other tasks of its job have finished."""
    return job.succeeded > 0 or job.predicted is not None or job.sweep.size_at(number) is not None


def mean_work(grid: Grid, job: Job) -> float:
    """Return the size of the job's mean task."""
    is_given = job.size is not None and job.size_source is not SizeSource.PREDICTED
    return job.size / job.task_count if is_given and job.size is not None else work_of(grid, job, 1)


def tag_of(grid: Grid, job: Job) -> float:
    """Return a job's finish tag, ``V + size``, as it enters the grid (docs/design/fair-hold.md)."""
    return grid.virtual + mean_work(grid, job) * (job.task_count - job.succeeded)


def observe(worker: Worker, attempt: Attempt, now: float) -> Observation:
    """Return the observation of its program that a successful attempt makes."""
    share, work = _share(worker, attempt), work_shown(worker, attempt)
    cpu_s, system_s, memory_bytes = attempt.cpu_s, attempt.system_s, attempt.peak_memory_bytes
    return Observation(
        now,
        worker.name,
        work,
        wall_s=attempt.wall_s,
        cpu_s=cpu_s,
        system_s=system_s,
        peak_memory_bytes=memory_bytes,
        share=share,
    )


def work_shown(worker: Worker, attempt: Attempt) -> float:
    """Return the work of an attempt in reference CPU-seconds: time x speed x share (docs/design/dynamic-load.md).

    Only benchmark and clocks enter, never a speed that was learnt nor a size that was predicted: see ``learn``.
    """
    return most_shown(worker, attempt) * _share(worker, attempt)


def most_shown(worker: Worker, attempt: Attempt) -> float:
    """Return the upper bound of an attempt's work: as if it had had its slots to itself."""
    wall_s = attempt.wall_s if attempt.wall_s > _SHORTEST_S else _SHORTEST_S
    return wall_s * worker.facts.speed


def _share(worker: Worker, attempt: Attempt) -> float:
    """Return the share of its slots that the attempt had: normally the share it used.

    If it used clearly less than was spare, it waited of its own accord and would wait as long anywhere: the share
    is then 1.
    """
    wall_s = attempt.wall_s if attempt.wall_s > _SHORTEST_S else _SHORTEST_S
    used = attempt.cpu_s / (wall_s * attempt.slots)
    if used >= 1.0 or not attempt.cpu_s:
        return 1.0
    left = worker.load.spare_cpu / max(worker.offered, attempt.slots) if worker.load else 0.0
    has_waited = used < _NEARLY_ALL * min(1.0, left)
    return 1.0 if has_waited else max(_LEAST_SHARE, used)


def learn(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """Learn the worker's speed from a successful attempt; return the work that it did.

    Only the time counts that the attempt had of its slots, not what the owner took: ``share_left`` tells what is
    taken now. A task whose size nobody gave is taken to be what its worker does in that time; nothing is learnt of
    the worker: its size is predicted from times and speeds, so that a speed learnt from it would be learnt from
    itself. (Let all speeds be twice as high and all sizes twice as large: every time is as before. So a circle of the
    two could drift anywhere; benchmarks and given sizes anchor it.) A size that is out of all proportion to the time
    is believed only in part: it may be in other units.
    """
    size = job.sweep.size_at(attempt.task)
    had_s = (attempt.wall_s if attempt.wall_s > _SHORTEST_S else _SHORTEST_S) * _share(worker, attempt)
    if size is None:
        return had_s * speed_of(grid, worker)
    promised = had_s * worker.facts.speed
    is_in_proportion = promised <= size * _PROPORTION and size <= promised * _PROPORTION
    believed = size if is_in_proportion else _within(promised / _PROPORTION, size, promised * _PROPORTION)
    worker.work_done += believed
    worker.work_s += had_s
    grid.measured += 1
    count = grid.measured if grid.measured < _MEMORY else _MEMORY
    grid.log_share += (math.log2(believed / promised) - grid.log_share) / count
    grid.share = _in_steps(grid.log_share, grid.share)
    return size


def learn_duration(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> None:
    """Learn the duration of a task whose result was accepted. Call it before the job counts the task."""
    wall_s = attempt.wall_s
    took = (wall_s if wall_s > _SHORTEST_S else _SHORTEST_S) * speed_of(grid, worker)
    log = math.log(took / (job.sweep.size_at(attempt.task) or 1.0))
    deviation = log - job.log_mean
    job.log_mean += deviation / (job.succeeded + 1)
    job.log_m2 += deviation * (log - job.log_mean)


def _known_work(grid: Grid, worker: Worker) -> float:
    return worker.work_done + _PRIOR_S * worker.facts.speed * grid.share


def merit(worker: Worker) -> int:
    """Return the rank of a worker among those with as many free slots; the highest is offered first.

    The faster goes first, by a sixth of an octave; among equals the one with more spare CPU, by quarters of a slot.
    """
    speed = (worker.work_done + _PRIOR_S * worker.facts.speed) / (worker.work_s + _PRIOR_S)
    if not _SLOWEST <= speed <= _FASTEST:
        speed = _within(_SLOWEST, speed, _FASTEST)
    return round(_LEVELS * math.log2(speed)) * (_QUARTERS + 1) + _quarters_left(worker)


def share_left(worker: Worker) -> float:
    """Return the share of each slot that the owner left spare at the last report: in quarters, a quarter at least."""
    return max(LEAST_LEFT, _quarters_left(worker) / _QUARTERS)


def _quarters_left(worker: Worker) -> int:
    if worker.load is None:
        return 0
    left = worker.load.spare_cpu / (worker.offered or 1)
    return _QUARTERS if left >= 1.0 else int(_QUARTERS * left)


def _mean_work(grid: Grid) -> float:
    return grid.work_accepted / grid.tasks_accepted if grid.tasks_accepted else _DEFAULT_WORK


def _in_steps(log_share: float, now: float) -> float:
    """Return ``now`` until the nearest step is clearly another one, for every speed changes with it."""
    moved = _STEPS * (log_share - math.log2(now))
    return now if abs(moved) < _CLEARLY else float(2.0 ** (round(_STEPS * log_share) / _STEPS))


def _within(least: float, value: float, most: float) -> float:
    return min(most, max(least, value))
