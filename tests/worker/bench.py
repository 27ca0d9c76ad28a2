"""A runner without an agent, and queries about processes."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts.limits import Quota
from loopline_worker.attempts.runner import Runner
from loopline_worker.core.events import AttemptEnded, Event, Followed, Returned
from loopline_worker.launch.posix import PosixLauncher
from loopline_worker.launch.sandbox import Sandbox
from loopline_worker.state.journal import Spool
from loopline_worker.supervisor.requests import ZygoteLine
from loopline_worker.task_group import TaskGroup


async def until(holds: Callable[[], object], within_s: float = 60) -> None:
    """Wait until the condition is true; raises TimeoutError otherwise."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)


def run_of(*command: str, task: int = 1, **options: Any) -> Run:
    """A Run of job 1."""
    return Run(AttemptId(1, task, 1), command, **{"parameters": {}, "environment": {}, **options})


def python(code: str, *arguments: str, **options: Any) -> Run:
    """A Run of Python code, without ``site`` for a fast start."""
    return run_of(sys.executable, "-I", "-S", "-c", code, *arguments, **options)


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process is alive; False also if it ends during the check."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def name_of(process: psutil.Process) -> str:
    """Return the name of a process; empty if it has just ended."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return living processes with a scratch folder below ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("LOOPLINE_SCRATCH", "").startswith(str(folder))
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


class Bench:
    """``results`` and ``troubles`` of the attempts started on ``runner``. Of prefetched tasks, ``followed`` has pairs
    (ended, started in its place), and ``returned`` those that did not start.
    """

    def __init__(
        self,
        folder: Path,
        yields: bool = False,
        output_limit_bytes: int = 100_000,
        quota: Quota | None = None,
        sandbox: Sandbox | None = None,
        given: ZygoteLine | None = None,
    ) -> None:
        self.results: dict[AttemptId, Result] = {}
        self.troubles: list[str] = []
        self.folder = folder
        self.scratch = folder / "scratch"
        self.spool = Spool(folder / "spool")
        self.launcher = PosixLauncher(yields, sandbox, given)
        self.task_group = TaskGroup()
        self.followed: list[tuple[int, int]] = []
        self.returned: list[int] = []
        self.runner = Runner(
            self.task_group,
            self.launcher,
            self.spool,
            self.scratch,
            self.take_in,
            worker="bench",
            output_limit_bytes=output_limit_bytes,
            quota=quota,
        )

    async def __aenter__(self) -> Self:
        await self.task_group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.runner.close("the bench closes")
        self.launcher.close()
        await self.task_group.__aexit__(*error)

    async def result(self, run: Run) -> Result:
        self.runner.start(run)
        return await self.end_of(run)

    async def end_of(self, run: Run) -> Result:
        await until(lambda: run.attempt in self.results)
        return self.results[run.attempt]

    async def begins(self, run: Run) -> None:
        """Start a run, and wait for its first process."""
        self.runner.start(run)
        await until(lambda: (self.scratch / str(run.attempt) / "begun").exists())

    def take_in(self, event: Event) -> None:
        match event:
            case AttemptEnded(result, trouble):
                self.results[result.attempt] = result
                self.troubles += [trouble] if trouble else []
            case Followed(before, after):
                self.followed.append((before.task, after.task))
            case Returned(attempts):
                self.returned += [attempt.task for attempt in attempts]
