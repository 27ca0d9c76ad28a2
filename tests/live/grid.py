"""A real grid on this machine: a master and workers as separate processes that tests can kill."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from socket import socket
from typing import NoReturn, TypeVar

import psutil

from loopline.client import AsyncClient
from loopline.local.local_grid import reserved
from loopline_master.store import replay
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import Range
from loopline_shared.rest.bodies import AttemptView, JobDetail
from loopline_shared.spec import JobSpec
from tests.live.daemons import Daemon

ROOT = Path(__file__).parents[2]
Fact = TypeVar("Fact")
Process = Daemon | asyncio.subprocess.Process


async def wait_for(what: str, ask: Callable[[], Awaitable[Fact | None]], seconds: float = 60.0) -> Fact:
    """Return the first true answer of ``fact``, polled at growing intervals; tests never wait for a fixed time."""
    pause_s, limit = 0.01, asyncio.timeout(seconds)
    try:
        async with limit:
            while not (fact := await ask()):
                await asyncio.sleep(pause_s)  # polls
                pause_s = min(0.1, 1.2 * pause_s)
    except TimeoutError:
        if limit.expired():
            raise AssertionError(f"waited {seconds:g} s in vain for {what}") from None
        raise
    return fact


async def watch(grid: Grid, mark: dict[str, str], seen: Callable[[list[dict[str, str]]], object]) -> NoReturn:
    """Call ``seen`` with the environments of all live tasks with this mark, one a task, until cancelled.

    Other processes that are alive now will not become tasks, so they are not read again and again.
    """
    others = {*psutil.pids()} - {process.pid for process in grid.processes(**mark)}
    while True:
        pids = {*psutil.pids()}
        others &= pids
        found = [given for given in map(grid.environment_of_task, pids - others) if mark.items() <= given.items()]
        seen([*{given["LOOPLINE_SCRATCH"]: given for given in found}.values()])
        await asyncio.sleep(0.02)  # looks all the time


LEASE_S = 60.0
"""Lease of workers in live tests: longer than any process waits on a busy computer."""
SHORTEST_LEASE_S = 10.0
"""Lease for tests that wait for its end."""


class Grid:
    shares_speed = True
    """A new worker has the measurement of an earlier one, and does not measure again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sandbox = "off"  # most tests read files that tasks write outside their folders; "auto" is the default
        self.data_dir = folder / "master"
        self._reserved = reserved()  # kept by a restarted master
        self.port = self._reserved.number
        self.url = f"http://127.0.0.1:{self.port}"
        self.master: Process | None = None
        self.workers: dict[str, Process] = {}
        self.flags: list[str] = []
        self._clients: list[AsyncClient] = []
        self._connected = dict[tuple[str, str, float], AsyncClient]()

    # --- processes ------------------------------------------------------------------------------------------

    async def start_master(self, *flags: str) -> None:
        """Start or restart the master on the same data; return when it serves."""
        self.flags = list(flags) or self.flags
        arguments = ["--port", str(self.port), "--data-dir", str(self.data_dir), *self.flags]
        self.master = await self._spawn("master", "loopline_master", *arguments)
        await wait_for("the master to serve", self._serves)

    async def start_worker(
        self,
        name: str,
        *flags: str,
        slots: int = 1,
        url: str | None = None,
        owner: dict[str, str] | None = None,
        settings: dict[str, str] | None = None,
        module: str = "loopline_worker",
    ) -> None:
        """Start a worker; ``owner``: variables of a computer with an owner, None: a dedicated one; ``settings``: more
        variables. ``module``: the program.
        """
        arguments = ["--master", url or self.url, "--name", name, "--slots", str(slots)]
        token = ["--token-file", str(self.data_dir / "tokens" / "worker")]
        data = ["--data-dir", str(self.folder / name), *(["--dedicated"] if owner is None else [])]
        if self.shares_speed:
            _share_speed(self.folder, self.folder / name)
        self.workers[name] = await self._spawn(
            name, module, *arguments, *token, *data, *flags, more=(owner or {}) | (settings or {})
        )

    async def kill_master(self) -> None:
        assert self.master is not None
        self._connected.clear()
        self.master.kill()
        await self.master.wait()

    async def kill_worker(self, name: str) -> None:
        self.workers[name].kill()
        await self.workers[name].wait()

    async def stop_worker(self, name: str) -> None:
        """Stop the worker as its service would, including its zygote and supervisors."""
        self.workers[name].terminate()
        await asyncio.wait_for(self.workers[name].wait(), 60)

    async def stop(self) -> None:
        for client in self._clients:
            await client.__aexit__(None, None, None)
        for process in [*self.workers.values(), self.master]:
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                await asyncio.wait_for(process.wait(), 60)
        self._reserved.release()

    async def _spawn(self, log: str, module: str, *arguments: str, more: dict[str, str] | None = None) -> Process:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
        environment |= {"HOME": str(self.folder), "LOOPLINE_SANDBOX": self.sandbox} | (more or {})
        file = self.folder / f"{log}.log"
        return Daemon(module, arguments, environment, self.folder, file)

    async def _serves(self) -> bool:
        assert self.master is not None
        log = (self.folder / "master.log").read_text(errors="replace")
        assert self.master.returncode is None, f"the master ended:\n{log}"
        with socket() as knocking:
            if knocking.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        try:
            await self.client(patience_s=0.0).whoami()
        except LooplineError:
            return False
        return True

    # --- actions and views of a user ------------------------------------------------------------------------

    def client(self, patience_s: float = 30.0) -> AsyncClient:
        """Return an admin client with persistent connections, since tests poll."""
        token = self.data_dir / "tokens" / "admin"
        secret = token.read_text().strip() if token.exists() else "none"
        ca = token.with_name("ca.pem")
        known = secret, ca.read_text() if ca.exists() else "", patience_s
        if known not in self._connected:
            self._connected[known] = AsyncClient(self.url, secret, patience_s=patience_s, ca=known[1])
            self._clients.append(self._connected[known])
        return self._connected[known]

    async def submit(self, script: str, tasks: int = 1, **options: object) -> int:
        """Submit a job of shell scripts; ``{i}`` is the task's number."""
        spec = JobSpec(
            command=["sh", "-c", script],
            parameters={"i": Range(range=[1, tasks])},
            **options,  # type: ignore[arg-type]
        )
        return (await self.client().submit(spec)).id

    async def job(self, job: int) -> JobDetail:
        return await self.client().job(job)

    async def ended(self, job: int, seconds: float = 60.0) -> JobDetail:
        client = self.client()

        async def is_over() -> JobDetail | None:
            view = await client.job(job)
            return view if view.finished_at is not None else None

        return await wait_for(f"job {job} to end", is_over, seconds)

    async def attempts(self, job: int) -> list[AttemptView]:
        return [attempt async for attempt in self.client().attempts(job)]

    async def attempts_when(
        self, what: str, job: int, true: Callable[[list[AttemptView]], bool]
    ) -> list[AttemptView]:
        async def look() -> list[AttemptView] | None:
            attempts = await self.attempts(job)
            return attempts if true(attempts) else None

        return await wait_for(what, look)

    async def connected(self, *names: str) -> None:
        client = self.client()

        async def are_there() -> bool:
            return {w.name async for w in client.workers() if w.connected and w.load} >= set(names)

        await wait_for(f"{names} to connect", are_there)

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.folder / name)

    def processes(self, **variables: str) -> list[psutil.Process]:
        """Return the processes of tasks by age, recognized by the scratch folder in their environment."""
        found = ((process, self.environment_of_task(process.pid)) for process in psutil.process_iter())
        return [process for process, given in found if given and variables.items() <= given.items()]

    def environment_of_task(self, pid: int) -> dict[str, str]:
        """Return a task's environment; empty if the process has ended, or is none of this grid's tasks."""
        try:
            given = psutil.Process(pid).environ()
        except psutil.Error:
            return {}
        return given if given.get("LOOPLINE_SCRATCH", "").startswith(str(self.folder)) else {}

    async def no_processes(self, seconds: float = 60.0) -> None:
        async def none_left() -> bool:
            return not self.processes()

        await wait_for("all task processes to be gone", none_left, seconds)

    # --- the end of every live test ---------------------------------------------------------------------------

    async def check(self) -> None:
        """Check that the order was kept, and that replaying the log gives exactly the stored rows."""
        report = await self.client().passing()
        assert report.passings == 0, report
        differences = await replay.check(str(self.data_dir / "loopline.db"))
        assert not differences, differences

    def log(self, name: str) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", (self.folder / f"{name}.log").read_text(errors="replace"))


def _share_speed(folder: Path, of_a_new_one: Path) -> None:
    """Give a worker the speed measured by another one of this process, so that it does not measure again."""
    if not _SPEED:
        _SPEED.extend(file.read_bytes() for file in folder.glob("*/speed.json"))
    if _SPEED and not of_a_new_one.exists():
        of_a_new_one.mkdir(mode=0o700)
        (of_a_new_one / "speed.json").write_bytes(_SPEED[0])


_SPEED: list[bytes] = []
"""The measurement of the first worker of this process; a worker on a different computer measures again."""


class Gate:
    """A file that tasks wait for: the test decides how long they run."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def wait(self) -> str:
        """Return shell code that waits until the gate is open."""
        return f"while [ ! -e {self.file} ]; do sleep 0.05; done"

    def open(self) -> None:
        self.file.touch()
