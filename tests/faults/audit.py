"""The auditor of a campaign: checks from outside what must hold after any faults.

It uses REST like a user, inspects processes and files, and otherwise knows only the driver's records: the jobs
acknowledged, with times, and their states seen during the campaign. It also runs the master's own audit of the order
and the replay of its log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.client import AsyncClient
from loopline.transfer.downloads import OutputFolder, outputs_of
from loopline_master.core.kernel.entities import MAX_TAKEN_DOWN
from loopline_master.store import replay
from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptState, JobState, TaskId
from loopline_shared.rest.bodies import AttemptView, JobView
from tests.faults.jobs import Drawn, digest

if TYPE_CHECKING:
    from tests.faults.driver import Campaign

Findings = list[str]
TAKEN_DOWN = ("its sandbox was killed", "its supervisor was killed")
"""Reasons of attempts that count as taken down. A task with MAX_TAKEN_DOWN of them may fail."""


async def audit(campaign: Campaign) -> Findings:
    """Return all findings, once all jobs have ended and all daemons are up."""
    client, drawn = campaign.client, campaign.jobs
    views = {view.id: view async for view in client.jobs()}
    attempts = {job.id: [one async for one in client.attempts(job.id)] for job in drawn if job.id in views}
    found = [*whole(drawn, views.values()), *passings(drawn, views)]
    for job in drawn:
        if job.id in views:
            found += ends(job, views[job.id], attempts[job.id])
            left_out = taken_down(attempts[job.id])
            found += [line async for line in _outputs(client, job, campaign.folder / "downloads", left_out)]
    found += contradictions(campaign.seen, attempts)
    found += await _left_running(campaign)
    found += tracebacks(sorted(campaign.folder.glob("*.log")))
    report = await client.passing()
    if report.passings:
        found.append(f"the master says itself that jobs passed: {report.latest}")
    if differences := await replay.check(campaign.database):
        found.append(f"the replay of the log leads elsewhere: {differences[:3]}")
    return found


def whole(drawn: Iterable[Drawn], views: Iterable[JobView]) -> Iterator[str]:
    """Yield acknowledged jobs that are missing, and jobs that are duplicated or were never submitted."""
    names = Counter(view.name for view in views)
    for job in drawn:
        if names[job.spec.name] != 1:
            yield f"job {job.id} ({job.spec.name}) was acknowledged, and is there {names[job.spec.name]} times"
    for name in names.keys() - {job.spec.name for job in drawn}:
        yield f"a job {name} is there that nobody submitted"


def passings(drawn: list[Drawn], views: dict[int, JobView]) -> Iterator[str]:
    """Yield pairs of jobs with sizes that completed out of order: the earlier one is not larger.

    A job without a size may be passed, and may pass jobs larger than its measured weight, which is unknown here.
    """
    here = [(job, views[job.id]) for job in drawn if job.id in views]
    for place, (second, its) in enumerate(here):
        for first, before in here[:place]:
            sizes = first.spec.size, second.spec.size
            if None in sizes or first.size > second.size or first.acknowledged_at > second.sent_at:
                continue
            if its.finished_at and its.finished_at < (before.finished_at or float("inf")):
                yield f"job {second.id} passed job {first.id}: it came later and is not smaller"


def ends(job: Drawn, view: JobView, attempts: list[AttemptView]) -> Iterator[str]:
    """Yield errors in the ends of a job's tasks: each ends once, by one launch, and fails only with a cause."""
    may_fail = taken_down(attempts)
    failed = view.tasks.failed if may_fail else 0
    if view.state not in (JobState.SUCCEEDED, JobState.FAILED if failed else JobState.SUCCEEDED) or (
        failed > len(may_fail) or view.tasks.succeeded + failed != job.tasks
    ):
        reasons = sorted({one.reason for one in attempts if one.reason})
        yield f"job {job.id} ended as {view.state} with {view.tasks}: {reasons[:5]}"
    accepted = defaultdict(list)
    for one in attempts:
        if one.accepted:
            accepted[one.id.task].append(one)
        if one.accepted and one.state is not AttemptState.SUCCEEDED:
            yield f"attempt {one.id} is accepted, and {one.state}"
    nodes = job.spec.nodes
    for task in range(1, job.tasks + 1):
        launches = Counter((one.id.number - 1) // nodes for one in accepted[task])
        if len(launches) > 1:
            yield f"task {job.id}.{task} was accepted twice: {[str(one.id) for one in accepted[task]]}"
        elif launches.total() != nodes and task not in may_fail:
            yield f"task {job.id}.{task} has {launches.total()} accepted of {nodes}"


def taken_down(attempts: list[AttemptView]) -> set[int]:
    """Return the tasks that may fail, because faults took them down too often."""
    times = Counter(one.id.task for one in attempts if one.reason in TAKEN_DOWN)
    return {task for task, count in times.items() if count >= MAX_TAKEN_DOWN}


def contradictions(seen: dict[TaskId, tuple[int, ...]], attempts: dict[int, list[AttemptView]]) -> Iterator[str]:
    """Yield tasks that were shown earlier as ended by other attempts than now."""
    for task, numbers in seen.items():
        now = tuple(one.id.number for one in attempts.get(task.job, ()) if one.id.task == task.task and one.accepted)
        if now != numbers:
            yield f"task {task} was shown as ended by attempts {numbers}, and now by {now}"


def tracebacks(logs: Iterable[Path]) -> Iterator[str]:
    """Yield the logs of daemons that contain a traceback: no fault from outside is a mistake in the code."""
    for log in logs:
        _, mark, rest = log.read_text(errors="replace").partition("Traceback (most recent call last)")
        if mark:
            yield f"{log.stem} logged a traceback: {rest[-1500:]}"


async def _outputs(client: AsyncClient, job: Drawn, folder: Path, left_out: set[int]) -> AsyncIterator[str]:
    """Yield unexpected outputs, except of the tasks in ``left_out``."""
    for number in sorted({*range(1, job.tasks + 1)} - left_out):
        task = TaskId(job.id, number)
        try:
            had = b"".join([piece async for piece in client.output(task)])
        except LooplineError as error:
            yield f"task {task} brought nothing: {error.message}"
            continue
        if had != job.brings(number).encode():
            yield f"task {task} brought {digest(had)}, not {digest(job.brings(number).encode())}: {had[:60]!r}"
        if not job.files:
            continue
        await OutputFolder(folder).download(client, task, await outputs_of(client, task), str(task))
        for name, expected in job.files.items():
            file = folder / str(task) / name
            had = file.read_bytes() if file.exists() else b""
            if had != expected(number):
                yield f"file {name} of task {task} is {digest(had)}, not {digest(expected(number))}"


async def _left_running(campaign: Campaign) -> Findings:
    """Return processes of tasks that still run a minute after all jobs have ended."""
    try:
        await campaign.grid.no_processes(60)
    except AssertionError:
        return [
            f"process {one.pid} of task {one.environ().get('LOOPLINE_ATTEMPT')} is left running"
            for one in campaign.grid.processes()
        ]
    return []
