"""``loopline top``: workers and jobs, live."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts.types import PositiveFloat
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from loopline.cli import values
from loopline.cli.common import PATIENCE_S, PLAIN, Common, read_by, some, stdout
from loopline.cli.render import human, network_tree, tables
from loopline.client import AsyncClient
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import FileFlow, JobView, PassingReport, WorkerView

_SHOWN_STATES = (JobState.RUNNING, JobState.QUEUED, JobState.WAITING)
_BAR = 20
_MOST = 200
_MOST_RUNNING = 6
_LEAST_FLOWS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Snapshot of the grid at one moment."""

    at: float = 0.0
    workers: list[WorkerView] = field(default_factory=list)
    jobs: list[JobView] = field(default_factory=list)
    passing: PassingReport | None = None
    flows: list[FileFlow] = field(default_factory=list)


async def top(
    *,
    every: Annotated[PositiveFloat, read_by(values.duration, "DURATION")] = 1.0,
    once: bool = False,
    common: Common = PLAIN,
) -> None:
    """Watch workers and jobs, live; `q` quits.

    Parameters
    ----------
    every
        Time between two updates.
    once
        Print once and exit.
    """
    console = stdout()
    async with common.client(0.0 if console.is_terminal else 1.0) as client:
        if once or common.json or not console.is_terminal:
            look = await _look(client)
            document = {"workers": look.workers, "jobs": look.jobs, "passing": look.passing, "flows": look.flows}
            common.show(document, lambda: _picture(look, client.master, _MOST))
            return
        with _quit_key() as quits, Live(console=console, screen=True, auto_refresh=False) as live:
            await _watch(client, console, live, quits, every)


async def _watch(client: AsyncClient, console: Console, live: Live, quits: asyncio.Event, every_s: float) -> None:
    """Update the picture until `q` is pressed. Raises LooplineError if the master is away for too long."""
    look, answered_at = Snapshot(), 0.0
    while not quits.is_set():
        trouble = ""
        try:
            look, answered_at = await _look(client), time.monotonic()
        except LooplineError as error:
            if error.code != "unreachable" or time.monotonic() - answered_at > PATIENCE_S:
                raise
            trouble = "no master answers; waiting for it"
        live.update(_picture(look, client.master, console.height, trouble), refresh=True)
        try:
            async with asyncio.timeout(every_s):
                await quits.wait()
        except TimeoutError:
            continue


async def _look(client: AsyncClient) -> Snapshot:
    jobs = [job for state in _SHOWN_STATES for job in reversed(await some(_MOST, client.jobs(state)))]
    workers = sorted(await some(0, client.workers()), key=lambda worker: (not worker.connected, worker.name))
    return Snapshot(time.time(), workers, jobs, await client.passing(), await _flows(client))


async def _flows(client: AsyncClient) -> list[FileFlow]:
    return (await client.network()).flows


def _picture(look: Snapshot, master: str, height: int, trouble: str = "") -> RenderableType:
    """Return as much as fits on so many lines: jobs have a half, workers what they leave."""
    half = max(3, (height - 8) // 2)
    shown_jobs = look.jobs[: max(half, height - 8 - len(look.workers))]
    shown_workers = look.workers[: max(half, height - 8 - len(shown_jobs))]
    parts: list[RenderableType] = [_summary(look, master, trouble), _workers(shown_workers, look)]
    parts.append(_jobs(shown_jobs, look) if look.jobs else Text("no job is queued or running", "dim"))
    if look.flows:
        left = height - 9 - len(shown_jobs) - len(shown_workers)
        parts += [Text("files on their way", "bold"), *network_tree.flow_lines(look.flows, max(_LEAST_FLOWS, left))]
    return Group(*parts)


def _summary(look: Snapshot, master: str, trouble: str) -> Text:
    here = [worker for worker in look.workers if worker.connected]
    slots, used = sum(worker.slots for worker in here), sum(worker.slots_used for worker in here)
    spare = sum(worker.load.spare_cpu for worker in here if worker.load)
    line = Text.assemble(
        ("loopline top  ", "bold"), f"{master}  {time.strftime('%H:%M:%S', time.localtime(look.at))}  "
    )
    line.append(f"{human.plural(len(here), 'worker')}, {used} of {slots} slots in use, {spare:.1f} cores spare  ")
    if look.passing is not None:
        style = "bold red" if look.passing.passings else "green"
        line.append(
            f"{human.plural(look.passing.passings, 'order violation')} in {look.passing.completions:,} completions",
            style,
        )
    if trouble:
        line.append(f"\n{trouble}", "yellow")
    return line


def _workers(workers: list[WorkerView], look: Snapshot) -> RenderableType:
    made = tables.table(
        "worker", "slots", "use", "spare CPU", "owner", "running", right=("spare CPU",),
        drop=("spare CPU", "use"), fold={"worker": 16, "owner": 12, "running": 16},
    )  # fmt: skip
    for worker in workers:
        load = worker.load
        running = " ".join(
            [*map(str, worker.running[:_MOST_RUNNING]), *["..."][: len(worker.running) > _MOST_RUNNING]]
        )
        made.add_row(
            worker.name, f"{worker.slots_used}/{worker.slots}", _slots(worker),
            f"{load.spare_cpu:.1f} of {worker.facts.cpus}" if load else "-",
            tables.owner(load) if load else "-", running or tables.worker_state(worker),
        )  # fmt: skip
    left = len(look.workers) - len(workers)
    return Group(made, Text(f"... and {human.plural(left, 'worker')} more", "dim")) if left else made


def _slots(worker: WorkerView) -> Text:
    """Return a mark for each slot, up to a readable number."""
    used, free = min(worker.slots_used, _BAR), min(max(0, worker.slots - worker.slots_used), _BAR)
    return Text.assemble(("■" * used, "cyan"), ("□" * free, "dim"))


def _jobs(jobs: list[JobView], look: Snapshot) -> RenderableType:
    made = tables.table(
        "job", "name", "state", "progress", "tasks", "took", right=("job",),
        drop=("took", "progress"), fold={"name": 16, "tasks": 24},
    )  # fmt: skip
    for job in jobs:
        made.add_row(
            str(job.id), Text(job.name), tables.job_state(job), _progress(job), tables.counts(job),
            human.period(job.took, look.at),
        )  # fmt: skip
    left = len(look.jobs) - len(jobs)
    return Group(made, Text(f"... and {human.plural(left, 'job')} more", "dim")) if left else made


def _progress(job: JobView) -> Text:
    def cells(count: int) -> int:
        return round(_BAR * count / job.task_count)

    done = cells(job.tasks.succeeded + job.tasks.failed)
    doing = min(_BAR - done, max(cells(job.tasks.running), job.tasks.running > 0))
    return Text.assemble(("━" * done, "green"), ("━" * doing, "cyan"), ("─" * (_BAR - done - doing), "dim"))


@contextmanager
def _quit_key() -> Iterator[asyncio.Event]:
    """Yield an event that `q` sets, if keys can be read one by one."""
    quits = asyncio.Event()
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield quits
        return
    import termios
    import tty

    before, loop = termios.tcgetattr(sys.stdin), asyncio.get_running_loop()

    def read() -> None:
        if sys.stdin.read(1) in ("q", "Q", "\x1b", ""):
            quits.set()

    tty.setcbreak(sys.stdin)
    loop.add_reader(sys.stdin, read)
    try:
        yield quits
    finally:
        loop.remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
