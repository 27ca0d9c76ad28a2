"""Measures of finished attempts: CPU time on their job's account, speeds of workers, sizes of tasks, finish tags.

**Accounting** is in whole milliseconds on the job, so that sums do not depend on any order. Useful, wasted and lost
time, and the time that checkpoints kept of attempts without a result, add up to all known time. An attempt without
a result is assumed to have run until its worker's last Report,
until a result corrects this. (A result that comes after the attempt was forgotten is corrected when it is read:
store/queries/job_queries.py.)

**Sizes** given by users are used if there are any; nothing else is declared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from loopline_master.core.estimates import program_history
from loopline_master.core.kernel.entities import UNSEATED, Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.runs import LEAST_SHARE, Observation, ProgramKey
from loopline_shared.model import Load, Outcome, SizeSource, TaskState

_MOST_S = 1e9

_PRIOR = 0.1
"""Weight of a worker's benchmark, as a part of its first attempt."""
_FADES = 1 - 1 / 32
"""Factor on earlier knowledge of a worker's speed, with each attempt: a machine may change."""
_LEAST_WORK = 1e-9
"""Least expected work of an attempt, in reference CPU-seconds: a checkpoint may contain more than was expected."""
_AGAIN = 1.1
_FAR = 4.0
"""Largest factor between a worker's believed speed and the speed that one attempt may show."""
_MOST_SKEW = 0.5
_FEW = 4
_TEACHES_S = 0.1
"""Shorter attempts show how processes are started rather than the machine's speed."""
_DEFAULT_WORK = 60.0
"""Reference CPU-seconds of a task in a grid without any experience."""
_SLOWEST, _FASTEST = 1e-6, 1e6
_SHORTEST_S = 1e-3
_NEARLY_ALL = 0.75
_LEVELS, _QUARTERS = 6, 4
LEAST_LEFT = 1 / _QUARTERS
"""Smallest share of each slot that an owner is assumed to leave spare."""
_SHOWN_TIMES = 2.0
_AS_GOOD_AS = 2
"""The prediction for a job's tasks counts as much as this many finished tasks."""


def ms_of(seconds: float) -> int:
    return round((seconds if seconds < _MOST_S else _MOST_S) * 1000)


def ran_s(attempt: Attempt, since: float, until: float) -> float:
    """Return an attempt's time between ``since`` and ``until`` in seconds, frozen time excluded."""
    ran_s = until - since
    for begin, end in attempt.freezes:
        ran_s -= max(0.0, (until if end is None else min(end, until)) - max(since, begin))
    return max(0.0, ran_s)


def worked_s(attempt: Attempt, until: float) -> float:
    """Return the seconds that an attempt has worked until then, without its time frozen or waiting for inputs."""
    since = attempt.since if attempt.started_at is None else attempt.started_at
    return max(0.0, ran_s(attempt, since, until) - attempt.fetch_s) if attempt.is_set_up else 0.0


def done_by(attempt: Attempt, worker: Worker, ran_s: float) -> float:
    """Return the work that an attempt has done once it has run for ``ran_s``, that in its checkpoint included."""
    return attempt.done_before + ran_s * speed_of(worker)


def assume_lost(job: Job, attempt: Attempt, worker: Worker) -> None:
    """Count the time of an attempt as lost, from its start to the last Report of its worker."""
    if attempt.started_at is not None and not attempt.assumed_cpu_ms:
        ran_ms = ms_of(ran_s(attempt, attempt.started_at, worker.reported_at or 0.0))
        attempt.assumed_cpu_ms = max(0, ran_ms - attempt.kept_cpu_ms)
        _charge(job, attempt, attempt.assumed_cpu_ms)
        job.lost_cpu_ms += attempt.assumed_cpu_ms


def undo_assumed_loss(job: Job, attempt: Attempt) -> None:
    """Undo ``assume_lost``: the attempt is still running, or its result has come."""
    _charge(job, attempt, -attempt.assumed_cpu_ms)
    job.lost_cpu_ms -= attempt.assumed_cpu_ms
    attempt.assumed_cpu_ms = 0


def account(job: Job, task: Task, attempt: Attempt, outcome: Outcome) -> None:
    """Count the CPU time of an attempt that has ended, by its outcome and the present state of its task."""
    ms = ms_of(attempt.cpu_s)
    if attempt.replica:
        _charge(job, attempt, ms)
    if attempt.accepted:
        job.useful_cpu_ms += ms
        job.won_cpu_ms += ms if attempt.replica and is_extra(attempt) else 0
        return
    ms = max(0, ms - attempt.kept_cpu_ms)
    if task.state is TaskState.SUCCEEDED or (task.is_open and outcome is Outcome.CANCELLED):
        job.wasted_cpu_ms += ms
    else:
        job.lost_cpu_ms += ms


def account_vote(job: Job, attempt: Attempt) -> int:
    """Return the CPU time of a vote; the job counts it by outcome once its task is decided."""
    ms = ms_of(attempt.cpu_s)
    _charge(job, attempt, ms)
    return ms


def is_extra(attempt: Attempt) -> bool:
    """True if the attempt is a replica for speed or safety, not required by a quorum."""
    return attempt.replica and not attempt.asked


def budget_left(job: Job, running: int, reserved_ms: int) -> bool:
    """True if the job's budget allows another replica.

    ``reserved_ms`` is the expected time of its ``running`` replicas, as of their dispatch. If a task has disproved
    the expectation, each of them counts as much as that task.
    """
    reserved_ms = max(reserved_ms, running * ms_of(job.longest))
    return job.budget_s is None or job.replicated_cpu_ms + reserved_ms < ms_of(job.budget_s)


def _charge(job: Job, attempt: Attempt, ms: int) -> None:
    if attempt.replica and is_extra(attempt):
        job.replicated_cpu_ms += ms


def speed_of(worker: Worker) -> float:
    """Return the reference CPU-seconds that a slot of the worker delivers in a second it has to itself."""
    return worker.work_done / worker.work_s if worker.work_s else worker.facts.speed


def speed_now(worker: Worker, wants: float = 1.0) -> float:
    """Return the reference CPU-seconds that a slot delivers in a second beside the owner's own work.

    ``wants``: the share of it that an undisturbed task uses.
    """
    speed, load = worker.work_done / worker.work_s if worker.work_s else worker.facts.speed, worker.load
    if load is not None and load.spare_cpu >= worker.offered:
        return speed
    left = share_left(worker)
    return speed if left >= wants else speed * left / wants


def credible_speed(worker: Worker) -> float:
    """Return the speed of a slot now, at most 1 before results on several workers have proven the worker's own."""
    speed = speed_now(worker)
    return speed if worker.work_s else min(speed, 1.0)


def credible_work(worker: Worker, work: float) -> float:
    """Return the part of a result's work that counts against its job's size, like ``credible_speed``."""
    return work if worker.work_s else work * min(1.0, 1.0 / worker.facts.speed)


def speed_for(worker: Worker, job: Job, programs: Mapping[ProgramKey, Program]) -> float:
    """Return the reference CPU-seconds that a task of the job gets done in a second of a slot, like ``speed_now``.

    An owner slows down only tasks that want more than the owner leaves: a task that waits of its own accord takes as
    long anywhere.
    """
    load = worker.load
    if load is not None and load.spare_cpu >= worker.offered:  # the usual case
        return worker.work_done / worker.work_s if worker.work_s else worker.facts.speed
    return speed_now(worker, share_wanted(job, programs))


def share_wanted(job: Job, programs: Mapping[ProgramKey, Program]) -> float:
    """Return the share of its slots, in quarters, that an undisturbed task of the job uses."""
    return program_history.share_wanted(programs.get(job.program), job.slots * job.nodes)


def left_of(grid: Grid, job: Job, worker: Worker, attempt: Attempt) -> float:
    """Return the seconds an attempt is expected to have left; for a late one, about as long again as it is late.

    (Exactly: if the attempt ended now, its worker would have proved slower than believed. Lateness is the excess over
    the expected time at *that* speed, so that little experience with a worker makes for little haste.)
    """
    work = max(_LEAST_WORK, work_of(grid, job, attempt.task) - attempt.done_before)
    elapsed = 0.0 if attempt.state in UNSEATED else grid.now - attempt.since
    if elapsed and (attempt.freezes or attempt.fetch_s or not attempt.is_set_up):
        elapsed = worked_s(attempt, grid.now)
    left = work / speed_now(worker) - elapsed
    if left >= 0:
        return left
    known = worker.work_done + _PRIOR * work
    return _AGAIN * -left * known / (known + work)


def late_from(grid: Grid, job: Job, worker: Worker, attempt: Attempt, left_s: float) -> float:
    """Return the time from which a seated attempt is so late that ``left_of`` is at least ``left_s``."""
    work = max(_LEAST_WORK, work_of(grid, job, attempt.task) - attempt.done_before)
    known = worker.work_done + _PRIOR * work
    is_plain = attempt.is_set_up and not (attempt.freezes or attempt.fetch_s)
    since = attempt.since if is_plain else grid.now - worked_s(attempt, grid.now)
    return since + work / speed_now(worker) + left_s * (known + work) / (_AGAIN * known)


def work_of(grid: Grid, job: Job, number: int) -> float:
    """Return the expected work of a task in reference CPU-seconds: from prediction and finished tasks.

    A given size counts in the job's own unit.
    """
    size = job.sweep.size_at(number)
    if job.longest:
        return _work_shown(grid, job, size)
    if size is not None:
        return size * unit_of(job) if job.log_mean else size
    if job.predicted is not None:
        known = _AS_GOOD_AS * job.predicted.mean + job.work_done
        return known / (_AS_GOOD_AS + job.succeeded)
    return job.work_done / job.succeeded if job.succeeded else _mean_work(grid)


def work_left(grid: Grid, job: Job, number: int) -> float:
    """Return the expected work of a new attempt, which excludes the work in the task's newest checkpoint."""
    work = work_of(grid, job, number)
    return max(0.0, work - job.saved[number][0]) if job.saved and number in job.saved else work


def _work_shown(grid: Grid, job: Job, size: float | None) -> float:
    """Return the expected work of a task of a job whose attempts have disproved the expectation."""
    if size is not None and job.size_source is SizeSource.GIVEN:
        return size * unit_of(job)
    expected, count = job.work_done, job.succeeded
    if job.predicted is not None:
        expected, count = expected + _AS_GOOD_AS * job.predicted.mean, count + _AS_GOOD_AS
    shown = (job.used + job.longest) / (job.succeeded + job.failed + 1)
    return max(shown, size or 0.0, expected / count if count else _mean_work(grid))


def is_known(job: Job, number: int) -> bool:
    """True if a task's size was given or predicted, or if other tasks of its job have finished."""
    return job.succeeded > 0 or job.predicted is not None or job.sweep.size_at(number) is not None


def unit_of(job: Job) -> float:
    """Return the reference CPU-seconds that a unit of the job's given sizes is worth, as measured; 1 if unknown.

    It is measured on the job's finished tasks, and before there are any, on its program's runs. So a user's wrong
    sizes affect only that user. Once an attempt has disproved these sizes, only measurements count.
    """
    if job.longest and job.size and job.size_source is SizeSource.GIVEN:
        return (job.used + job.longest) / (job.work_done + job.size / job.task_count)
    if not job.log_mean or job.size_source is not SizeSource.GIVEN:
        return 1.0
    return math.exp(job.log_mean + min(_MOST_SKEW, job.log_m2 / (2 + 2 * job.succeeded)))  # the mean, if lognormal


def mean_work(grid: Grid, job: Job) -> float:
    """Return the expected work of the job's mean task in reference CPU-seconds."""
    return _mean_size(grid, job) * unit_of(job)


def weight_shown(job: Job) -> float | None:
    """Return the weight of an unsized job by its tasks with a result; None if there is none.

    It is twice their work, where a task without a result counts as their mean: the last one may be longer.
    """
    done = job.succeeded + job.failed
    return _SHOWN_TIMES * job.used * job.task_count / done if done and job.used > 0 else None


def tag_of(grid: Grid, job: Job) -> float:
    """Return a job's finish tag, ``V + size``, as it enters the grid (docs/design/fair-hold.md)."""
    return grid.virtual + _mean_size(grid, job) * (job.task_count - job.succeeded)


def _mean_size(grid: Grid, job: Job) -> float:
    is_given = job.size is not None and job.size_source is not SizeSource.PREDICTED
    return job.size / job.task_count if is_given and job.size is not None else work_of(grid, job, 1)


def observe(job: Job, worker: Worker, attempt: Attempt, now: float) -> Observation:
    """Return the observation of its program from a successful attempt."""
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
        done=attempt.work,
        size=job.sweep.size_at(attempt.task) if job.size_source is SizeSource.GIVEN else None,
    )


def work_shown(worker: Worker, attempt: Attempt) -> float:
    """Return the work of an attempt in reference CPU-seconds: time x speed x share (docs/design/dynamic-load.md).

    It uses only benchmark and clocks, never a learnt speed or a predicted size.
    """
    return most_shown(worker, attempt) * _share(worker, attempt)


def most_shown(worker: Worker, attempt: Attempt) -> float:
    """Return the upper bound of an attempt's work: as if it had had its slots to itself."""
    wall_s = attempt.wall_s if attempt.wall_s > _SHORTEST_S else _SHORTEST_S
    return wall_s * worker.facts.speed


def _share(worker: Worker, attempt: Attempt) -> float:
    """Return the share of its slots that the attempt had: normally the share it used.

    If it used clearly less than was spare, it waited of its own accord and would wait as long anywhere: the share is
    then 1.
    """
    wall_s = attempt.wall_s if attempt.wall_s > _SHORTEST_S else _SHORTEST_S
    used = attempt.cpu_s / (wall_s * attempt.slots)
    if used >= 1.0 or not attempt.cpu_s:
        return 1.0
    return 1.0 if _has_waited(worker, attempt, used) else max(LEAST_SHARE, used)


def _has_waited(worker: Worker, attempt: Attempt, used: float) -> bool:
    left = worker.load.spare_cpu / max(worker.offered, attempt.slots) if worker.load else 0.0
    return used < _NEARLY_ALL * min(1.0, left)


def work_done(worker: Worker, attempt: Attempt) -> float:
    """Return the work of a successful attempt: its worker's believed speed times the attempt's time.

    Only the time counts that the attempt had of its slots, without the owner's part.
    """
    wall_s = attempt.wall_s if attempt.wall_s > _SHORTEST_S else _SHORTEST_S
    return wall_s * _share(worker, attempt) * speed_of(worker)


def may_teach(worker: Worker, attempt: Attempt, *, is_news: bool) -> bool:
    """True if the worker's speed is learnt from the attempt; once it is known, some of many at a time are enough."""
    return attempt.wall_s >= _TEACHES_S and (is_news or worker.work_s < _FEW * attempt.wall_s)


def learn_speed(worker: Worker, attempt: Attempt, expected: float) -> None:
    """Learn the worker's speed from a successful attempt, whose ``expected`` work comes from other workers' runs.

    So speeds follow from a program's times on different workers, and not from sizes that users give; the benchmarks
    set the scale. An attempt that waited of its own accord shows nothing about its worker.
    """
    had_s = attempt.work / speed_of(worker)
    if attempt.cpu_s and _has_waited(worker, attempt, attempt.cpu_s / (attempt.wall_s * attempt.slots)):
        return
    if not worker.work_s:
        worker.work_s, worker.work_done = _PRIOR * had_s, _PRIOR * had_s * worker.facts.speed
    done = worker.work_done * _FADES + _within(attempt.work / _FAR, expected, attempt.work * _FAR)
    worker.work_s = worker.work_s * _FADES + had_s
    worker.work_done = _within(_SLOWEST * worker.work_s, done, _FASTEST * worker.work_s)


def note_longer(job: Job, work: float) -> None:
    """Note that an attempt of the job takes clearly longer than expected: this work, in reference CPU-seconds.

    A given size is disproved only by a task that exceeds the size of the whole job: its computer may just be slow.
    """
    job.confirmed = 0
    if job.size_source is not SizeSource.GIVEN or work > (job.size or 0.0):
        job.longest = max(job.longest, work)


def learn_duration(job: Job, work: float, size: float | None) -> None:
    """Learn the duration of a task whose result was accepted. Call it before the job counts the task.

    The previously assumed worth of a given size counts as much as one task.
    """
    log = math.log(work / size if size else work)
    deviation = log - job.log_mean
    job.log_mean += deviation / (job.succeeded + (2 if job.size_source is SizeSource.GIVEN else 1))
    job.log_m2 += deviation * (log - job.log_mean)


def merit(worker: Worker) -> int:
    """Return the rank of a worker among those with as many free slots; the highest is offered first.

    Faster workers come first, by a sixth of an octave; equal ones are ranked by spare CPU, in quarters of a slot.
    """
    return round(_LEVELS * math.log2(speed_of(worker))) * (_QUARTERS + 1) + _quarters_left(worker)


def delay_of(worker: Worker) -> float:
    """Return the delay of the network to the worker in seconds, as last reported; 0 if unknown (the paper's D)."""
    return (worker.load and worker.load.delay_s) or 0.0


def share_left(worker: Worker) -> float:
    """Return the share of each slot that the owner left spare at the last report: in quarters, a quarter at least."""
    return max(LEAST_LEFT, _quarters_left(worker) / _QUARTERS)


def _quarters_left(worker: Worker) -> int:
    return 0 if worker.load is None else quarters_of(worker.load, worker.offered)


def quarters_of(load: Load, offered: int) -> int:
    """Return the spare share of each offered slot, in quarters, at most four. No decision uses a finer value."""
    left = load.spare_cpu / (offered or 1)
    return _QUARTERS if left >= 1.0 else int(_QUARTERS * left)


def _mean_work(grid: Grid) -> float:
    return grid.work_accepted / grid.tasks_accepted if grid.tasks_accepted else _DEFAULT_WORK


def _within(least: float, value: float, most: float) -> float:
    return min(most, max(least, value))
