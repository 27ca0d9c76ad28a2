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
_DEFAULT_WORK = 60.0
"""Reference CPU-seconds of a task in a grid that knows nothing yet."""
_SLOWEST, _FASTEST = 1e-6, 1e6
_SHORTEST_S = 1e-3


def speed_of(grid: Grid, worker: Worker) -> float:
    """Reference CPU-seconds that one slot of the worker delivers in a second: what its finished attempts had,
    and its benchmark, at the share that all benchmarks turned out to be worth.
    """
    work = worker.work_done + _PRIOR_S * worker.facts.speed * grid.share
    return min(_FASTEST, max(_SLOWEST, work / (worker.work_s + _PRIOR_S)))


def left_of(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """Seconds that an attempt is expected to take still; one that is late, about as long again as it is late.

    (Exactly: were the attempt to end now, its worker would have shown itself slower than was thought; late is what
    it is over the time expected at *that* speed. So little experience with a worker makes for little haste.)
    """
    work, elapsed = work_of(grid, job, attempt.task), grid.now - attempt.dispatched_at
    left = work / speed_of(grid, worker) - elapsed
    if left >= 0:
        return left
    known = worker.work_done + _PRIOR_S * worker.facts.speed * grid.share
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
    """Its virtual finishing time under fair sharing (fair-hold.md: ``tag = V + size``), as it arrives."""
    return grid.virtual + mean_work(grid, job) * job.task_count


def learn(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """An attempt has succeeded: remember how fast its worker was; the work that it did.

    A task of unknown size is taken to be what its worker does in that time; nothing is learnt of the worker.
    """
    wall_s = max(attempt.wall_s, _SHORTEST_S)
    size = size_at(job.spec, attempt.task)
    if size is None:
        return wall_s * speed_of(grid, worker)
    worker.work_done += size
    worker.work_s += wall_s
    grid.work_done += size
    grid.benchmark_done += wall_s * worker.facts.speed
    grid.share = _in_steps(grid.work_done / grid.benchmark_done)
    return size


def _mean_work(grid: Grid) -> float:
    return grid.work_accepted / grid.tasks_accepted if grid.tasks_accepted else _DEFAULT_WORK


def _in_steps(share: float) -> float:
    return float(2.0 ** (round(_STEPS * math.log2(max(share, _SLOWEST))) / _STEPS))
