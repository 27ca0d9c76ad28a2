"""What finished attempts have shown, and what follows for those to come: how fast workers are, how large tasks
are where nobody said, how far the virtual clock of fair sharing has come. Measured, never declared.
"""

from __future__ import annotations

import math

from master.scheduling.model import Attempt, Grid, Job, Worker
from shared.sweep import size_at

_PRIOR_S = 50.0
"""A worker's benchmark counts as so many seconds of experience with it."""
_AGAIN = 1.1
_STEPS = 4
"""The share that owners leave over is known to one part in so many of a factor of two: it changes rarely."""
_CLEARLY = 0.75
_PROPORTION = 64.0
_MEMORY = 1000
"""So many attempts are remembered equally; older ones fade."""
_DEFAULT_WORK = 60.0
"""Reference CPU-seconds of a task in a grid that knows nothing yet."""
_SLOWEST, _FASTEST = 1e-6, 1e6
_SHORTEST_S = 1e-3


def speed_of(grid: Grid, worker: Worker) -> float:
    """Reference CPU-seconds that one slot of the worker delivers in a second: what its finished attempts had,
    and its benchmark, at the share that all benchmarks turned out to be worth.
    """
    return _within(_SLOWEST, _known_work(grid, worker) / (worker.work_s + _PRIOR_S), _FASTEST)


def left_of(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """Seconds that an attempt is expected to take still; one that is late, about as long again as it is late.

    (Exactly: were the attempt to end now, its worker would have shown itself slower than was thought; late is what
    it is over the time expected at *that* speed. So little experience with a worker makes for little haste.)
    """
    work, elapsed = work_of(grid, job, attempt.task), grid.now - attempt.dispatched_at
    left = work / speed_of(grid, worker) - elapsed
    if left >= 0:
        return left
    known = _known_work(grid, worker)
    return _AGAIN * -left * known / (known + work)


def work_of(grid: Grid, job: Job, number: int) -> float:
    """Size of one task in reference CPU-seconds; where nobody said, the mean of those finished stands in."""
    size = size_at(job.spec, number)
    if size is not None:
        return size
    return job.work_done / job.succeeded if job.succeeded else _mean_work(grid)


def mean_work(grid: Grid, job: Job) -> float:
    """Size of the job's mean task."""
    return job.size / job.task_count if job.size is not None else work_of(grid, job, 1)


def tag_of(grid: Grid, job: Job) -> float:
    """Its virtual finishing time under fair sharing (fair-hold.md: ``tag = V + size``), as it enters the grid."""
    return grid.virtual + mean_work(grid, job) * (job.task_count - job.succeeded)


def learn(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """An attempt has succeeded: remember how fast its worker was; the work that it did.

    A task of unknown size is taken to be what its worker does in that time; nothing is learnt of the worker. Of one
    whose size is out of all proportion to its time, only so much is believed: it may be in other units.
    """
    wall_s = max(attempt.wall_s, _SHORTEST_S)
    size = size_at(job.spec, attempt.task)
    if size is None:
        return wall_s * speed_of(grid, worker)
    promised = wall_s * _benchmark(worker)
    believed = _within(promised / _PROPORTION, size, promised * _PROPORTION)
    worker.work_done += believed
    worker.work_s += wall_s
    grid.measured += 1
    grid.log_share += (math.log2(believed / promised) - grid.log_share) / min(grid.measured, _MEMORY)
    grid.share = _in_steps(grid.log_share, grid.share)
    return size


def _benchmark(worker: Worker) -> float:
    return _within(_SLOWEST, worker.facts.speed, _FASTEST)


def _known_work(grid: Grid, worker: Worker) -> float:
    return worker.work_done + _PRIOR_S * _benchmark(worker) * grid.share


def _mean_work(grid: Grid) -> float:
    return grid.work_accepted / grid.tasks_accepted if grid.tasks_accepted else _DEFAULT_WORK


def _in_steps(log_share: float, now: float) -> float:
    """Stays as it is ``now`` until the nearest step is clearly another one: every speed changes with it."""
    moved = _STEPS * (log_share - math.log2(now))
    return now if abs(moved) < _CLEARLY else float(2.0 ** (round(_STEPS * log_share) / _STEPS))


def _within(least: float, value: float, most: float) -> float:
    return min(most, max(least, value))
