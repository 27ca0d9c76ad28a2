"""Shared parts of benchmarks: a real grid in its own folder, competing programs, CPU use, and rounds in turns."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loopline.client import AsyncClient
from loopline_worker.supervisor import processes

ROOT = Path(__file__).parents[2]
YARDSTICKS = ROOT / "benchmarks" / "yardsticks"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0
YARDSTICK_LIMIT_S = 120.0
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY_S = 0.002
_UNWANTED = ("LOOPLINE", "XDG", "PYTHONDONTWRITEBYTECODE")
"""Settings of the user's; and a program that is installed has its bytecode."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Figures = dict[str, Any]
Run = Callable[[], Awaitable[Figures]]


# What processes use.


def cpu_s(pid: int) -> float:
    """Return the CPU time of one process, in user and system mode, without its children."""
    return sum(_ticks(pid)[:2]) / _TICKS_PER_S


def tree_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its descendants, including ended ones whose parents waited for them."""
    return sum(sum(_ticks(each)) for each in [pid, *processes.descendants(pid)]) / _TICKS_PER_S


def _ticks(pid: int) -> list[int]:
    """utime, stime, cutime, cstime."""
    stat = processes.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return [int(part) for part in stat[11:15]] or [0, 0, 0, 0]


def memory_bytes(pid: int) -> int:
    """Return the resident memory of one process; 0 if it has ended."""
    parts = processes.read(f"/proc/{pid}/statm").split()
    return int(parts[1]) * os.sysconf("SC_PAGE_SIZE") if parts else 0


def tree_memory_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; shared pages count for each."""
    return sum(map(memory_bytes, [pid, *processes.descendants(pid)]))


def fsync_s(folder: Path, times: int = 200) -> list[float]:
    """Return the time until a file grown by a page is on disk: the least cost of a commit."""
    seconds = []
    with (folder / "fsync").open("ab") as file:
        for _ in range(times):
            begin = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begin)
    return seconds


# A grid.


@dataclass
class Grid:
    """A real master and real workers, as processes of their own; nothing of the user's settings reaches them."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    """More than the usual, for all of them."""
    url: str = ""
    programs: dict[str, Process] = field(default_factory=dict)

    async def start_master(self, *flags: str) -> None:
        """Back once it serves; also again, on the same data."""
        await self.run("master", "loopline_master", "--port", "0", *flags)
        self.url = (await self.until_said("master", "serves at ")).split()[0]

    async def start_worker(self, name: str = "w1", *flags: str, slots: int = 2, dedicated: bool = True) -> None:
        """Start a worker without waiting for it. ``dedicated``: it does not yield to other programs."""
        token = self.folder / "master" / "tokens" / "worker"
        own = ["--master", self.url, "--token-file", str(token), "--name", name, "--slots", str(slots)]
        await self.run(name, "loopline_worker", *own, *(["--dedicated"] if dedicated else []), *flags)

    async def run(self, name: str, module: str, *arguments: str) -> Process:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_UNWANTED)}
        environment |= {"HOME": str(self.folder), "PYTHONPATH": str(ROOT), **self.environment}
        command = [sys.executable, "-m", module, *arguments, "--data-dir", str(self.folder / name)]
        with self.log(name).open("wb") as log:
            self.programs[name] = await asyncio.create_subprocess_exec(
                *command, cwd=self.folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self.programs[name]

    async def until_said(self, name: str, words: str) -> str:
        """Wait for these words in a program's log, and return the text that follows them."""
        give_up = time.monotonic() + START_LIMIT_S
        while words not in (said := self.log(name).read_text("utf-8", "replace")):
            if self.programs[name].returncode is not None or time.monotonic() > give_up:
                raise SystemExit(f"the benchmark's {name} did not come up; it said:\n{said[-2000:]}")
            await asyncio.sleep(_LOOK_EVERY_S)
        return said.partition(words)[2]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def token(self) -> str:
        return (self.folder / "master" / "tokens" / "admin").read_text("utf-8").strip()

    def ca_file(self) -> Path | None:
        """Return the CA to trust the master by; None if it does not encrypt."""
        return next((self.folder / "master" / "tokens").glob("ca.pem"), None)

    def client(self) -> AsyncClient:
        ca = self.ca_file()
        return AsyncClient(self.url, self.token(), ca=ca.read_text("utf-8") if ca else "")

    def cpu_by_role(self) -> dict[str, float]:
        """Return the CPU time of the master, of agents, of processes below agents, and of this client."""
        workers = [program.pid for name, program in self.programs.items() if name != "master"]
        agents = sum(map(cpu_s, workers))
        return {
            "master": tree_cpu_s(self.programs["master"].pid),
            "agent": agents,
            "below": sum(map(tree_cpu_s, workers)) - agents,
            "client": time.process_time(),
        }

    async def stop(self) -> None:
        """Workers first, so that they end their tasks and say so."""
        for name in sorted(self.programs, key="master".__eq__):
            await ended(self.programs[name])
        self.programs.clear()

    async def kill(self) -> None:
        """Kill the grid as a power cut would, except that the kernel still writes its buffers."""
        for program in self.programs.values():
            program.kill()
            await program.wait()
        self.programs.clear()


@asynccontextmanager
async def grid(
    slots: int = 2,
    *flags: str,
    workers: Sequence[str] = ("w1",),
    worker_flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Grid]:
    """All of it connected; ``flags`` are the master's. Raises SystemExit if this clone is below /tmp."""
    if ROOT.is_relative_to("/tmp"):
        raise SystemExit(
            f"{ROOT} is below /tmp, of which each task has its own: views need more mounts here. Clone it elsewhere"
        )
    with tempfile.TemporaryDirectory(prefix="loopline-bench-", ignore_cleanup_errors=True) as folder:
        one = Grid(Path(folder), dict(environment or {}))
        try:
            await one.start_master(*flags)
            for name in workers:
                await one.start_worker(name, *worker_flags, slots=slots)
            for name in workers:
                await one.until_said(name, "connected to ")
            yield one
        finally:
            await one.stop()


async def ended(process: Process) -> None:
    """Ask it to stop, and kill it where it does not."""
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_LIMIT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


# Turns.


@dataclass(frozen=True)
class Way:
    """A way to do the same work."""

    name: str
    durable: str
    """Durability of submissions and results before they are acknowledged: yes, no, or - (no acknowledgement)."""
    start: Callable[[], AbstractAsyncContextManager[Run]]
    """Context that is open while the way is ready to run."""
    rounds: int = 1000
    """Maximum number of rounds."""


@asynccontextmanager
async def yardstick(*command: str | Path, environment: dict[str, str] | None = None) -> AsyncIterator[Run]:
    """A program that measures itself: it says when it is ready, and runs once for each line that it is sent."""
    _adopt_orphans(True)
    own = _Own(set(processes.descendants(os.getpid())))
    with tempfile.TemporaryFile() as said_of_errors:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdin=PIPE, stdout=PIPE, stderr=said_of_errors, limit=2**24,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        try:
            await _said(process)
            yield partial(_one_turn, process, own)
        except EndedError as error:
            said_of_errors.seek(0)
            last = said_of_errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise EndedError(f"{error}: {''.join(last)}") from None
        finally:
            await own.end(process)
            _adopt_orphans(False)


class EndedError(Exception):
    """A yardstick has failed."""


async def _one_turn(process: Process, own: _Own) -> Figures:
    assert process.stdin
    used_s = own.cpu_s()
    process.stdin.write(b"\n")
    figures = await _said(process)
    return {"cpu_s": own.cpu_s() - used_s, **figures}


async def _said(process: Process) -> Figures:
    """The next line that is a figure; libraries may say other things too."""
    assert process.stdout
    async with asyncio.timeout(YARDSTICK_LIMIT_S):
        async for line in process.stdout:
            if line.startswith(b"{"):
                return dict(json.loads(line))
    raise EndedError("it ended before it had an answer")


def _adopt_orphans(yes: bool) -> None:
    """Make this process the parent of its orphaned descendants: some peers start workers that leave their
    sessions.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


class _Own:
    """The processes of a yardstick: all descendants of this one that did not exist before."""

    def __init__(self, others: set[int]) -> None:
        self._others = others

    def pids(self) -> list[int]:
        return [pid for pid in processes.descendants(os.getpid()) if pid not in self._others]

    def cpu_s(self) -> float:
        return sum(sum(_ticks(pid)) for pid in self.pids()) / _TICKS_PER_S

    async def end(self, first: Process) -> None:
        """End the processes. ``first``: asyncio waits for it and for all processes that hold its pipes."""
        while first.returncode is None or self.pids():
            self._kill()
            with suppress(TimeoutError):
                await asyncio.wait_for(first.wait(), 1.0)
                self._reap()

    def _kill(self) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Reap adopted children, whose parents have ended."""
        for pid in self.pids():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


async def in_turns(ways: Iterable[Way], rounds: int, progress: Callable[[str], None]) -> dict[str, list[Figures]]:
    """Run all ways once, then in reverse order, and so on, so that other load affects all alike.

    Each runs alone on the computer. A failure is reported, and its way left out.
    """
    found: dict[str, list[Figures]] = {}
    ways = list(ways)
    for number in range(rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            if number >= way.rounds:
                continue
            progress(f"round {number + 1} of {rounds}: {way.name}")
            try:
                async with way.start() as run:
                    found.setdefault(way.name, []).append(await run())
            except (EndedError, OSError, TimeoutError) as error:
                progress(f"{way.name} is left out: {type(error).__name__} {error}")
                found.pop(way.name, None)
                ways = [each for each in ways if each is not way]
    return found
