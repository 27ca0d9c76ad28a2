"""Launching on POSIX: one launcher process, and below it a guard for each slot, kept from task to task."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_worker.host import descriptors
from loopline_worker.launch import delegation
from loopline_worker.launch.duration_estimate import Pace
from loopline_worker.launch.interface import Job, Patron
from loopline_worker.launch.process_tree import PosixTree
from loopline_worker.launch.sinks import Sink, Target, opened
from loopline_worker.launch.supervisor_link import Line
from loopline_worker.supervisor import processes
from loopline_worker.supervisor.claims import Tickets
from loopline_worker.supervisor.control_groups import Places
from loopline_worker.supervisor.orders import TaskOrder

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId
    from loopline_worker.launch.sandbox import Sandbox

_HOME = Path(__file__).parents[2]
_PROGRAM = (
    f"import sys; sys.path.append({str(_HOME)!r}); "
    "from loopline_worker.supervisor.zygote import main; main(*map(int, sys.argv[1:3]), *sys.argv[3:])"
)
_NEEDED = ("LD_LIBRARY_PATH",)  # by some builds of Python; nothing else, the agent's token least of all
_IDLE_S = 30.0
"""So long a guard waits for its next task."""
_LONG_S = 0.03
"""Behind what has run for so long nothing is lined up, for it may run for as long again."""


class PosixLauncher:
    """Keeps one launcher process. Guards outlive it: one that was killed is replaced at the next start."""

    def __init__(self, yields: bool, sandbox: Sandbox | None = None) -> None:
        self._yields = yields
        self._sandbox = sandbox
        self._claimed: Places | None = None
        self._users_threads = _UsersThreads()
        self._pace = Pace()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._free: dict[Line, float] = {}  # since when; what was last in use comes last
        self._lines: set[Line] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._cpu_s = 0.0

    @property
    def lines(self) -> PosixLauncher:
        return self

    async def start(self, job: Job, stdout: Target, stderr: Target) -> PosixTree:
        if isinstance(stdout, int) or isinstance(stderr, int):
            async with opened(stdout, stderr) as files:
                return self._begin(self._tree(job, ()), files)
        return self._begin(self._tree(job, (stdout, stderr)))

    def takes(self, job: Job) -> bool:
        return job.makes_folder and job.call is None

    def begin(self, patron: Patron, name: AttemptId, job: Job, stdout: Sink, stderr: Sink) -> PosixTree:
        return self._begin(self._tree(job, (stdout, stderr), patron, name))

    def line_up(self, patron: Patron, name: AttemptId, job: Job, stdout: Sink, stderr: Sink) -> PosixTree:
        lines = self._short() or self._at_work()
        if not lines:
            raise OSError("the launcher was killed just now")
        tree = self._tree(job, (stdout, stderr), patron, name)
        min(lines, key=lambda line: line.lined_up).line_up(tree)
        return tree

    def room(self) -> int:
        """None behind what has run for long already."""
        if not (depth := self._pace.in_a_moment()):
            return 0
        return sum(max(0, depth - line.lined_up) for line in self._short())

    def recall(self) -> None:
        """From all lines at once, so that it goes back in the order in which it came."""
        trees = [tree for line in self._lines for tree in line.take_back()]
        for patron in {tree.patron for tree in trees if tree.patron}:
            patron.returned([tree.name for tree in trees if tree.patron is patron and tree.name])

    def cpu_s(self) -> float:
        with suppress(OSError):  # no file descriptor left: as it was
            process = processes.look(self._process.pid) if self._process else None
            self._cpu_s = process.cpu_s if process else 0.0
        return self._cpu_s

    def close(self) -> None:
        """Guards kill what still runs of what nobody waits for, and the launcher ends after the last of them."""
        self._hang_up()
        for line in self._at_work():
            self.part(line)

    # Guards.

    def _tree(
        self, job: Job, sinks: Sequence[Sink], patron: Patron | None = None, name: AttemptId | None = None
    ) -> PosixTree:
        return PosixTree(self._order(job), sinks, job.limits, self._yields, patron, name)

    def _begin(self, tree: PosixTree, files: Sequence[int] = ()) -> PosixTree:
        line = self._take()
        try:
            line.begin(tree, files)
        except OSError:
            self.part(line)
            raise
        tree.begins()
        return tree

    def _take(self) -> Line:
        """One that is free, or a new one. OSError where there can be none."""
        if self._free:
            return self._free.popitem()[0]
        with ExitStack() as undoing:
            ours, theirs = socket.socketpair()
            undoing.callback(ours.close)
            with theirs:
                tickets = Tickets()
                undoing.callback(tickets.close)
                self._hand_over(theirs.fileno(), tickets.drawn_from)
            undoing.pop_all()
        line = Line(ours, tickets, self._places, self)
        self._lines.add(line)
        return line

    def _at_work(self) -> list[Line]:
        """Those behind whose tasks others can be lined up."""
        return [line for line in self._lines if line.first and line.first.patron]

    def _short(self) -> list[Line]:
        """Those among them whose task may be over in a moment."""
        long_ago = time.monotonic() - _LONG_S
        return [line for line in self._at_work() if line.began_at > long_ago]

    def _hand_over(self, *files: int) -> None:
        if self._socket:
            with suppress(ConnectionError):
                socket.send_fds(self._socket, [b"+"], files)
                return
            self._lose()
        socket.send_fds(self._open(), [b"+"], files)

    # What lines say.

    def ended(self, tree: PosixTree, elapsed_s: float | None) -> None:
        if tree.patron and elapsed_s is not None:
            self._pace.took(elapsed_s)
        long_ago = time.monotonic() - _LONG_S
        if any(line.lined_up and line.began_at <= long_ago for line in self._lines):
            self.recall()  # from behind what takes long after all, while others come to an end

    def freed(self, line: Line) -> None:
        if self._socket is None or line not in self._lines:
            self.part(line)
            return
        self._free[line] = time.monotonic()
        if self._resting is None:
            self._resting = asyncio.get_running_loop().call_later(_IDLE_S, self._rest)

    def part(self, line: Line) -> None:
        line.close()
        self._free.pop(line, None)
        self._lines.discard(line)

    def _rest(self) -> None:
        """Let go of those that have waited for long."""
        self._resting = None
        for line in [line for line, since in self._free.items() if since <= time.monotonic() - _IDLE_S]:
            self.part(line)
        if self._free:
            self._resting = asyncio.get_running_loop().call_later(_IDLE_S, self._rest)

    # The launcher process.

    def _open(self) -> socket.socket:
        if self._process:
            self._process.poll()
        ours, theirs = socket.socketpair()
        with theirs:
            places = [f"{kind}={place}" for kind, place in self._places.items()]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(theirs.fileno()), str(int(self._yields)), *places],
                pass_fds=[theirs.fileno()], cwd="/", start_new_session=True,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        descriptors.as_it_was(self._process.pid)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._lose)
        return ours

    def _lose(self) -> None:
        """It was killed: behind its guards is nobody any more, so each goes as soon as it has no task."""
        self.recall()
        self._hang_up()
        self._lines.clear()

    def _hang_up(self) -> None:
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
        self._socket = None
        for line in list(self._free):
            self.part(line)

    @property
    def _places(self) -> Places:
        """Where guards have their control groups; claimed for the first one."""
        if self._claimed is None:
            self._claimed = delegation.claim(self._yields) if sys.platform == "linux" else {}
        return self._claimed

    def _order(self, job: Job) -> TaskOrder:
        """Return what the supervisor is told of the job."""
        limits, threads = job.limits, None
        if limits.processes and "pids" not in self._places:  # stops what is faster than the watch
            threads = self._users_threads.now() + 2 * limits.processes
        return TaskOrder(
            list(job.command),
            job.folder,
            job.environment,
            sandbox=self._sandbox.options(job) if self._sandbox else [],
            makes_folder=job.makes_folder,
            memory_bytes=limits.memory_bytes,
            processes=limits.processes,
            file_bytes=limits.scratch_bytes,
            user_threads=threads,
        )


class _UsersThreads:
    """How many our user has; counting takes milliseconds, so that it is not done for every attempt."""

    _GOOD_FOR_S = 5.0

    def __init__(self) -> None:
        self._count = 0
        self._counted_at = -math.inf

    def now(self) -> int:
        if time.monotonic() - self._counted_at > self._GOOD_FOR_S:
            self._count, self._counted_at = processes.threads_of_user(), time.monotonic()
        return self._count
