"""A real master and real workers on this computer, in a folder of their own, which are all stopped at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from loopline.client import AsyncClient
from loopline.programs import program
from loopline_shared.errors import LooplineError

START_LIMIT_S = 60.0
STOP_LIMIT_S = 15.0
_PAUSE_S = 0.05


@dataclass
class DemoGrid:
    """The processes of the demo."""

    folder: Path
    url: str
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def admin_token(self) -> Path:
        """File of the admin token."""
        return self.folder / "master" / "tokens" / "admin"

    async def start(self, workers: Sequence[str], slots: int) -> None:
        """Start master and workers; return when every worker is connected."""
        port = self.url.rpartition(":")[2]
        await self._run("master", "master", "--host", "127.0.0.1", "--port", port)
        await self._until(self._answers)
        token = str(self.admin_token.with_name("worker"))
        # The tasks of the demo need not yield to an owner.
        joining = ("--master", self.url, "--token-file", token, "--dedicated")
        for name in workers:
            await self._run(name, "worker", *joining, "--name", name, "--slots", str(slots))
        async with self.client() as client:

            async def are_connected() -> bool:
                return sum([worker.connected async for worker in client.workers()]) == len(workers)

            await self._until(are_connected)

    def client(self, patience_s: float = START_LIMIT_S) -> AsyncClient:
        """Return a client of the master."""
        return AsyncClient(self.url, self.admin_token.read_text("utf-8").strip(), patience_s=patience_s)

    async def stop(self) -> None:
        """Stop the workers first, so that they end their tasks and report it, then the master."""
        master, *workers = self.processes.values()
        await asyncio.gather(*map(_end, workers))
        await _end(master)

    async def _run(self, name: str, what: str, *arguments: str) -> None:
        """Start a program in its own session, so that Ctrl-C in the terminal reaches only the demo."""
        data = str(self.folder / name)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *program(f"loopline_{what}", what, *arguments, "--data-dir", data), env=_environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    async def _answers(self) -> bool:
        if not self.admin_token.is_file():
            return False
        try:
            async with self.client(patience_s=0) as client:
                return bool(await client.whoami())
        except LooplineError as error:
            if error.code != "unreachable":
                raise
            return False

    async def _until(self, fact: Callable[[], Awaitable[bool]]) -> None:
        give_up = time.monotonic() + START_LIMIT_S
        while not await fact():
            ended = [name for name, process in self.processes.items() if process.returncode is not None]
            if ended or time.monotonic() > give_up:
                raise self._failure((ended or list(self.processes))[-1])
            await asyncio.sleep(_PAUSE_S)

    def _failure(self, name: str) -> LooplineError:
        said = (self.folder / f"{name}.log").read_text("utf-8", "replace").strip().splitlines()[-8:]
        return LooplineError("demo", "\n  ".join([f"{name} of the demo did not come up; it said:", *said]))


@asynccontextmanager
async def running(workers: Sequence[str], slots: int) -> AsyncIterator[DemoGrid]:
    """Run a grid for the block."""
    with TemporaryDirectory(prefix="loopline-demo-", ignore_cleanup_errors=True) as folder:
        grid = DemoGrid(Path(folder), f"http://127.0.0.1:{_free_port()}")
        try:
            await grid.start(workers, slots)
            yield grid
        finally:
            if grid.processes:
                await grid.stop()


async def _end(process: Process) -> None:
    """Stop a process; kill it and its session if it does not end in time."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_LIMIT_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _environment() -> dict[str, str]:
    """Return the environment without the user's settings for another grid."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE_")}
    return {**kept, "LOOPLINE_CONFIG": os.devnull}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
