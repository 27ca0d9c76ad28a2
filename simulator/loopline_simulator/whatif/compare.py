"""A recording beside its replay under other decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from statistics import fmean

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.kernel.entities import Job
from loopline_simulator.whatif.recording import Recording
from loopline_simulator.whatif.tally import COMPLETED, Tally, passings

SHOWN = 30
"""Number of jobs listed in the text; JSON has all of them."""


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Times of a job in seconds; None for an event still to come. ``end_s`` counts from the log's beginning."""

    state: str
    wait_s: float | None
    execution_s: float | None
    total_s: float | None
    end_s: float | None


@dataclass(frozen=True, slots=True)
class Overall:
    """Figures of one side. Means are over the jobs that completed on both sides."""

    policy: str
    order: str
    wait_s: float | None
    _: KW_ONLY
    execution_s: float | None
    total_s: float | None
    end_s: float | None  # of the last job to complete
    completed: int
    passings: int  # except excused ones, which passed a paused or stalled job
    excused: int
    lost_s: float  # slot-seconds of attempts without an accepted result
    lost_share: float  # lost_s as a share of all slot-seconds


@dataclass(frozen=True, slots=True)
class JobRow:
    job: int
    name: str
    size: float | None
    recorded: JobTimes
    what_if: JobTimes | None  # None: the replay had no room for it


@dataclass(frozen=True, slots=True)
class WhatIfComparison:
    recorded: Overall
    what_if: Overall
    jobs: list[JobRow]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def compare(
    recording: Recording, other: Tally, settings: SchedulerSettings, jobs_as: Mapping[int, int]
) -> WhatIfComparison:
    """Compare the recording with its replay under ``settings``; ``jobs_as`` maps recorded job numbers to replayed
    ones.
    """
    rows = [
        JobRow(job.id, job.spec.name, job.size, _course(job, recording.began), _course_of(other, jobs_as.get(job.id)))
        for job in sorted(recording.tally.jobs.values(), key=lambda job: job.id)
    ]
    both = [row for row in rows if row.what_if and None not in (row.recorded.end_s, row.what_if.end_s)]
    recorded = _overall(recording.tally, recording.settings, [row.recorded for row in both], recording.began)
    what_if = _overall(other, settings, [row.what_if for row in both if row.what_if], 0.0)
    return WhatIfComparison(recorded, what_if, rows)


def text(comparison: WhatIfComparison) -> str:
    """Return the comparison as text."""
    lines = [f"{'':24}{'recorded':>18}{'what if':>18}{'change':>10}"]
    lines += _overall_lines(comparison.recorded, comparison.what_if)
    lines += ["", f"{'job':>6}  {'name':16}{'wait':>20}{'execution':>22}{'total':>22}{'end':>22}"]
    lines += [_job_line(row) for row in comparison.jobs[:SHOWN]]
    if len(comparison.jobs) > SHOWN:
        lines.append(f"... and {len(comparison.jobs) - SHOWN:,} jobs more: --json has them all")
    return "\n".join(lines)


def _course_of(tally: Tally, job: int | None) -> JobTimes | None:
    return None if job is None else _course(tally.jobs[job], 0.0)


def _course(job: Job, began: float) -> JobTimes:
    end = job.finished_at if job.state in COMPLETED else None
    return JobTimes(
        job.state.value,
        _between(job.submitted_at, job.started_at),
        _between(job.started_at, end),
        _between(job.submitted_at, end),
        _between(began, end),
    )


def _overall(tally: Tally, settings: SchedulerSettings, courses: Iterable[JobTimes], began: float) -> Overall:
    listed = list(courses)
    found = passings(tally)
    completed = [job for job in tally.jobs.values() if job.state in COMPLETED]
    computed = tally.used_s + tally.lost_s
    return Overall(
        settings.policy,
        settings.order.value,
        _mean(course.wait_s for course in listed),
        execution_s=_mean(course.execution_s for course in listed),
        total_s=_mean(course.total_s for course in listed),
        end_s=max((_between(began, job.finished_at) or 0.0 for job in completed), default=None),
        completed=len(completed),
        passings=found.count - found.excused,
        excused=found.excused,
        lost_s=tally.lost_s,
        lost_share=tally.lost_s / computed if computed else 0.0,
    )


def _overall_lines(recorded: Overall, what_if: Overall) -> list[str]:
    lines = [f"{name:24}{getattr(recorded, key):>18}{getattr(what_if, key):>18}" for name, key in _WORDS]
    for name, key in _TIMES:
        before, after = getattr(recorded, key), getattr(what_if, key)
        change = f"{after / before - 1:+10.1%}" if before and after is not None else ""
        lines.append(f"{name:24}{seconds(before):>18}{seconds(after):>18}{change}".rstrip())
    for name, key in _COUNTS:
        lines.append(f"{name:24}{getattr(recorded, key):>18,}{getattr(what_if, key):>18,}")
    lines.append(f"{'lost computing, share':24}{recorded.lost_share:>18.2%}{what_if.lost_share:>18.2%}")
    return lines


_WORDS = (("policy", "policy"), ("order", "order"))
_TIMES = (
    ("mean wait", "wait_s"),
    ("mean execution", "execution_s"),
    ("mean total", "total_s"),
    ("end of the last job", "end_s"),
    ("lost computing", "lost_s"),
)
_COUNTS = (("jobs completed", "completed"), ("passings", "passings"), ("passings, excused", "excused"))


def _job_line(row: JobRow) -> str:
    other = row.what_if
    pairs = [
        f"{seconds(getattr(row.recorded, key))} > {seconds(getattr(other, key) if other else None)}"
        for key in ("wait_s", "execution_s", "total_s", "end_s")
    ]
    return f"{row.job:>6}  {row.name[:15]:16}{pairs[0]:>20}" + "".join(f"{pair:>22}" for pair in pairs[1:])


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
