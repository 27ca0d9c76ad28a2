"""A grid's past in the formats of the Parallel Workloads Archive (SWF) and the Failure Trace Archive (FTA).

Users and programs have numbers there, no names.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from loopline_shared import __version__
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import PastJob, WorkerStay

_STATUS = {JobState.SUCCEEDED: 1, JobState.FAILED: 0, JobState.CANCELLED: 5}
_SWF_HEAD = """\
; Version: 2.2
; Computer: a desktop grid
; Installation: Loopline {version}
; UnixStartTime: {start}
; MaxJobs: {jobs}
; TimeZoneString: UTC
; StartTime: {started}
; Note: A job's processors are its tasks x nodes x slots; most jobs had fewer of them at a time.
; Note: Run time is the mean of the attempts whose results count; jobs without such an attempt have -1.
; Note: Wait time is the time until the first task started. Times are seconds; requested times are not exported.
"""


async def write_swf(jobs: AsyncIterable[PastJob], file: Path) -> int:
    """Write the jobs in the Standard Workload Format, by the time of submission. Return their number."""
    kept = [job async for job in jobs]
    _write(file, swf(kept))
    return len(kept)


async def write_fta(stays: AsyncIterable[WorkerStay], file: Path) -> int:
    """Write times of availability, and of absences between them. Return the number of workers."""
    kept = [stay async for stay in stays]
    _write(file, fta(kept))
    return len({stay.worker for stay in kept})


def swf(jobs: Sequence[PastJob]) -> Iterator[str]:
    """Yield the lines of a workload log."""
    ordered = sorted(jobs, key=lambda job: (job.submitted_at, job.id))
    start = int(ordered[0].submitted_at) if ordered else 0
    started = datetime.fromtimestamp(start, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    yield _SWF_HEAD.format(version=__version__, start=start, jobs=len(jobs), started=started)
    users: dict[str, int] = {}
    programs: dict[str, int] = {}
    for number, job in enumerate(ordered, 1):
        user = users.setdefault(job.user, len(users) + 1)
        program = programs.setdefault(job.name, len(programs) + 1)
        yield _swf_line(job, number, start, user, program)


def _swf_line(job: PastJob, number: int, start: int, user: int, program: int) -> str:
    processors, results = job.task_count * job.nodes * job.slots, job.results
    fields: Sequence[float | None] = (
        number,
        job.submitted_at - start,
        None if job.started_at is None else job.started_at - job.submitted_at,
        job.wall_s / results if results else None,
        processors,
        job.cpu_s / (results * job.slots) if results else None,
        job.peak_memory_bytes / 1024 / job.slots if job.peak_memory_bytes else None,  # KB for each processor
        processors,
        None,  # requested time
        None,  # requested memory
        _STATUS.get(job.state, -1),
        user,
        None,  # group
        program,
        *(None,) * 4,  # queue, partition, job before it, think time
    )
    return " ".join("-1" if value is None else _number(value) for value in fields) + "\n"


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def fta(stays: Sequence[WorkerStay]) -> Iterator[str]:
    """Yield the lines of an ``event_trace.tab``: type 1 is available, type 0 is not."""
    yield (
        "# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time "
        "event_end_reason\n"
    )
    nodes: dict[str, int] = {}
    left: dict[str, float] = {}
    event = 0
    for stay in stays:
        node = nodes.setdefault(stay.worker, len(nodes) + 1)
        spans = [(1, stay.since, stay.until)]
        if stay.worker in left:
            spans.insert(0, (0, left[stay.worker], stay.since))
        for kind, since, until in spans:
            event += 1
            yield f"{event}\t{node}\t{node}\t0\tnode-{node}\t{kind}\t{since:.0f}\t{until:.0f}\t-1\n"
        left[stay.worker] = stay.until


def _write(file: Path, lines: Iterator[str]) -> None:
    try:
        with file.open("w", encoding="utf-8") as out:
            out.writelines(lines)
    except OSError as error:
        raise LooplineError("unwritable", f"{file}: {error.strerror}", "give another file") from None
