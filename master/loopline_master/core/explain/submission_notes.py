"""Notes on a job that was just submitted: its holder, and a size that cannot be true or is missing."""

from __future__ import annotations

from collections.abc import Mapping

from loopline_master.core.estimates import program_history
from loopline_master.core.estimates.eta import Forecast, Unknown
from loopline_master.core.explain.phrases import counted, size_of, spoken
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_shared.model import Order, SizeSource

IMPLAUSIBLE = 5.0
"""A size is questioned if it is beyond the range of nine in ten past runs by this factor ..."""
NOTABLE_S = 60.0
"""... and at least this many reference CPU-seconds off."""
_NO_SIZE = "no size: later jobs may finish first; submit with --size to be counted"


def is_held(state: State, number: int) -> bool:
    """True if the order guarantee holds the job back now, regardless of the workers."""
    job = state.jobs.get(number)
    return job is not None and job.is_live and _first(state, job) is not None


def held_behind(state: State, number: int, outlook: Mapping[int, Forecast | Unknown]) -> str:
    """Return the holder of a held job in words, the forecast of the wait, and a remedy."""
    job = state.jobs[number]
    first = _first(state, job)
    assert first is not None
    latest = state.index.hold_over(job).blocker(job.arrival, job.weight)
    last = first if latest is None else state.index.live[latest]
    others = " and others" if last is not first else ""
    ends = [outlook.get(one.id) for one in (first, last)]
    known = [end.p50_s for end in ends if isinstance(end, Forecast)]
    duration = f"about {spoken(max(known))}" if len(known) == len(ends) else "for a time not known yet"
    what = "its delivery is " if job.order is Order.DELIVER else "its last task is " if job.task_count > 1 else ""
    hint = f"; give --size below {_size(first.size)} to go first" if job.size is None and first.size else ""
    return f"{what}held behind job {first.id} ({size_of(first)}){others}, {duration}{hint}"


def implausible_size(state: State, number: int) -> str | None:
    """Return the doubt about a size that past runs of the program contradict; None if there is none."""
    job = state.jobs.get(number)
    if job is None or job.size is None or job.size_source is not SizeSource.GIVEN:
        return None
    program = state.programs.get(job.program)
    predicted = program_history.predict(program) if program is not None else None
    if predicted is None:
        return None
    least, most = job.task_count * predicted.p10 / IMPLAUSIBLE, job.task_count * predicted.p90 * IMPLAUSIBLE
    usual_s = job.task_count * predicted.mean
    if least <= job.size <= most or abs(job.size - usual_s) < NOTABLE_S:
        return None
    usual = f"{counted(job.task_count, 'task')} of it come to {spoken(usual_s)}"
    return f"the size given, {spoken(job.size)}, cannot be true: by {counted(predicted.runs, 'past run')}, {usual}"


def without_claim(job: Job) -> str | None:
    """Return the note on a job without a size; None for any other job."""
    return _NO_SIZE if job.size is None and job.order is not Order.NONE else None


def _size(seconds: float) -> str:
    """Return a size as ``--size`` takes it, in three digits or whole seconds."""
    return f"{seconds:.3g}s" if seconds < 1000 else f"{seconds:.0f}s"


def _first(state: State, job: Job) -> Job | None:
    """Return the earliest of the jobs that hold this one."""
    if job.order is Order.NONE:
        return None
    arrival = state.index.hold_over(job).first(job.arrival, job.weight)
    return None if arrival is None else state.index.live[arrival]
