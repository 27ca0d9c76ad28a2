"""A real master and real workers on this computer, which all end with the program that started them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.local import caretaker
from loopline.local.folder import local_folder
from loopline.programs import program, require
from loopline_shared.errors import LooplineError
from loopline_shared.ids_and_states import Order
from loopline_shared.rest.address import DEFAULT_PORT

if TYPE_CHECKING:
    from loopline.client import AsyncClient

START_LIMIT_S = 60.0
_PAUSE_S = 0.02
_KNOCKING = ("--retry-min-s", "0.02", "--retry-max-s", "0.1")
_OF_ANOTHER = ("LOOPLINE_TOKEN", "LOOPLINE_CA_FILE")
_LAST_WORDS = 8  # lines of a log


@dataclass
class LocalGrid:
    """The daemons of a grid on this computer. ``folder``: of their data and logs."""

    folder: Path
    port: ReservedPort
    removes_folder: bool = True
    order: Order = Order.NONE  # with one user, no other user's job can be passed
    pids: dict[str, int] = field(default_factory=dict)
    """Process of each daemon by its name."""
    _caretaker: Process | None = None
    _reading: asyncio.Task[None] | None = None
    _names: list[str] = field(default_factory=list)
    _ended: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Address of the master."""
        return f"http://127.0.0.1:{self.port.number}"

    @property
    def admin_token(self) -> Path:
        """File of the admin token."""
        return self.folder / "master" / "tokens" / "admin"

    def environment(self) -> dict[str, str]:
        """Return the environment of a program that will use this grid, without settings for another one."""
        kept = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER}
        return {**kept, "LOOPLINE_MASTER": self.url, "LOOPLINE_TOKEN_FILE": str(self.admin_token)}

    def client(self, patience_s: float = START_LIMIT_S) -> AsyncClient:
        """Return a client of the master."""
        from loopline.client import AsyncClient  # the daemons start first

        token = self.admin_token.read_text("utf-8").strip()
        return AsyncClient(self.url, token, patience_s=patience_s, ca="")

    async def start(self, workers: Sequence[str], slots: int | None) -> None:
        """Start master and workers; return when every worker is connected. Raises LooplineError.

        They start beside each other: a worker knocks until the master listens, which has written a token by then.
        ``slots``: of each worker; None: as many as it has cores.
        """
        require("master", "worker")
        own = ("--token-file", str(self._worker_token()), *(("--slots", str(slots)) if slots else ()))
        serving = ("--host", "127.0.0.1", "--port", str(self.port.number), "--order", self.order)
        await self._run("master", program("loopline_master", "master", *serving))
        joining = ("--master", self.url, *_KNOCKING)
        for name in workers:  # run tasks although the user is at this computer
            command = program("loopline_worker", "worker", *joining, "--dedicated", *own, "--name", name)
            await self._run(name, command)
        await self._until(self._answers)
        async with self.client() as client:

            async def are_connected() -> bool:
                return sum([worker.connected async for worker in client.workers()]) >= len(workers)

            await self._until(are_connected)

    def _worker_token(self) -> Path:
        """Return the file of the workers' token, empty before the first start of the master."""
        file = self.admin_token.with_name("worker")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        return file

    async def look_after(self, pid: int) -> None:
        """Have a command of the user's end with this program, however that ends."""
        assert self._caretaker
        assert self._caretaker.stdin
        self._caretaker.stdin.write(json.dumps({"command_pid": pid}).encode() + b"\n")
        await self._caretaker.stdin.drain()

    async def ended(self) -> str:
        """Wait until a daemon ends that was not stopped; return its name."""
        assert self._reading
        await asyncio.shield(self._reading)
        return (self._ended or self._names)[-1]

    async def stop(self) -> None:
        """End workers and master, and remove the folder if it is to go."""
        if self._caretaker is None:
            if self.removes_folder:
                shutil.rmtree(self.folder, ignore_errors=True)
        else:
            assert self._caretaker.stdin
            self._caretaker.stdin.close()
            await self._caretaker.wait()
            if self._reading:
                self._reading.cancel()
        self.port.release()

    def failure(self, name: str) -> LooplineError:
        """Return the error of a daemon that ended, or did not come up, with the last lines of its log."""
        log = self.folder / f"{name}.log"
        said = log.read_text("utf-8", "replace").strip().splitlines()[-_LAST_WORDS:] if log.is_file() else []
        daemon = name if name == "master" else f"worker {name!r}"
        return LooplineError("local", "\n  ".join([f"the {daemon} of this grid has failed; it said:", *said]))

    async def _run(self, name: str, command: list[str]) -> None:
        """Have the caretaker start a daemon, without the user's settings for another grid."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LOOPLINE_")}
        log = self.folder / f"{name}.log"
        order = {
            "name": name, "command": [*command, "--data-dir", str(self.folder / name)], "log": str(log),
            "environment": {**kept, "LOOPLINE_CONFIG": os.devnull},
        }  # fmt: skip
        if self._caretaker is None:
            self._caretaker = await self._started()
            self._reading = asyncio.create_task(self._read(self._caretaker))
        assert self._caretaker.stdin
        self._names.append(name)
        self._caretaker.stdin.write(json.dumps(order).encode() + b"\n")
        await self._caretaker.stdin.drain()

    async def _started(self) -> Process:
        what_goes = "remove" if self.removes_folder else "keep"
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", caretaker.__file__, str(self.folder), what_goes,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    async def _read(self, process: Process) -> None:
        """Read the caretaker's reports until a daemon or the caretaker itself has ended."""
        assert process.stdout
        while line := await process.stdout.readline():
            match json.loads(line):
                case {"started": name, "pid": pid}:
                    self.pids[name] = pid
                case {"ended": name}:
                    self._ended.append(name)
                    return

    async def _answers(self) -> bool:
        if not self.admin_token.is_file():
            return False
        try:
            async with self.client(patience_s=0) as client:
                return bool(await client.whoami())
        except LooplineError as error:
            if error.code not in ("unreachable", "wrong_token"):  # the latter of another master, which has the port
                raise
            return False

    async def _until(self, fact: Callable[[], Awaitable[bool]]) -> None:
        give_up = time.monotonic() + START_LIMIT_S
        while not await fact():
            assert self._reading
            if self._reading.done() or time.monotonic() > give_up:
                raise self.failure((self._ended or self._names)[-1])
            await asyncio.sleep(_PAUSE_S)


@asynccontextmanager
async def running(workers: Sequence[str], slots: int | None) -> AsyncIterator[LocalGrid]:
    """Run a grid for the block, in a temporary folder and with the order guarantee."""
    grid = LocalGrid(Path(tempfile.mkdtemp(prefix="loopline-demo-")), reserved(), order=Order.HOLD)
    async with started(grid, workers, slots):
        yield grid


@asynccontextmanager
async def started(grid: LocalGrid, workers: Sequence[str], slots: int | None) -> AsyncIterator[LocalGrid]:
    """Run a grid for the block."""
    try:
        await grid.start(workers, slots)
        yield grid
    finally:
        await grid.stop()


def new_grid(port: int | None = None, data_dir: Path | None = None, *, any_port: bool = False) -> LocalGrid:
    """Return a grid that is not started, at the usual port if that is free, else or with ``any_port`` at any.

    Its folder is where clients on this computer look for its token, and goes with it; ``data_dir`` is kept instead.
    Raises LooplineError if the port that is asked for is taken.
    """
    place = _asked_for(port) if port else reserved(*([] if any_port else [DEFAULT_PORT]))
    folder = data_dir or local_folder(place.number)
    if data_dir is None:  # a grid that was there lost its caretaker and its power at once
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LocalGrid(folder.absolute(), place, removes_folder=data_dir is None)


def _asked_for(port: int) -> ReservedPort:
    try:
        return ReservedPort(port)
    except OSError as error:
        message = f"port {port} of this computer cannot be used: {error.strerror}"
        raise LooplineError("port_taken", message, "give another --port, or none") from None


class ReservedPort:
    """A port reserved until this object is closed. Raises OSError if it is taken.

    A socket that does not listen is bound to it. On Linux the kernel then gives the port to no program that asks for
    any free port, while a server that sets SO_REUSEADDR can listen on it. An abstract socket named after the port,
    which ends with this process, keeps it from others who reserve ports in this way. Other systems would refuse the
    server, too: there the port was only free when it was checked.
    """

    def __init__(self, number: int = 0) -> None:
        place = socket.socket()
        self._held = [place]
        try:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("127.0.0.1", number))
            self.number: int = place.getsockname()[1]
            if sys.platform == "linux":
                self._held.append(socket.socket(socket.AF_UNIX))
                self._held[-1].bind(f"\0loopline-port-{self.number}")
        except OSError:
            self.release()
            raise
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Let others have the port, once its daemon has ended."""
        for held in self._held:
            held.close()


def reserved(*wanted: int) -> ReservedPort:
    """Reserve the first of these ports that is free, or else any."""
    for number in wanted:
        with suppress(OSError):
            return ReservedPort(number)
    return ReservedPort()
