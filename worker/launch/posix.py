"""The agent's end of launching on POSIX: hands attempts to the launcher, then speaks with each one's guard."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from worker import descriptors, scratch
from worker.launch import delegation, priority, processes
from worker.launch.groups import Group, Places
from worker.launch.sinks import Target, opened
from worker.launch.trees import Ended, Job, Usage, usage_of
from worker.limits import Breach, Limits

if TYPE_CHECKING:
    from worker.launch.sandbox import Sandbox
    from worker.launch.spawn import Job as Order

_HOME = Path(__file__).parents[2]
_PROGRAM = (
    f"import sys; sys.path.append({str(_HOME)!r}); "
    "from worker.launch.zygote import main; main(*map(int, sys.argv[1:3]), *sys.argv[3:])"
)
_NEEDED = ("LD_LIBRARY_PATH",)  # by some builds of Python; nothing else, the agent's token least of all
_STOPPED = "TtZX"  # dead ones included
_OUR_MISTAKES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class PosixLauncher:
    """Keeps one launcher process. Guards outlive it: one that was killed is replaced at the next start."""

    def __init__(self, yields: bool, sandbox: Sandbox | None = None) -> None:
        self._yields = yields
        self._sandbox = sandbox
        self._claimed: Places | None = None
        self._users_threads = _UsersThreads()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._cpu_s = 0.0

    async def start(self, job: Job, stdout: Target, stderr: Target) -> PosixTree:
        if job.makes_folder:
            await asyncio.to_thread(scratch.make, job.folder)
        ours, theirs = socket.socketpair()
        async with opened(stdout, stderr) as outputs:
            with theirs:
                self._hand_over([theirs.fileno(), *outputs])
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(json.dumps(self._order(job)).encode() + b"\n")
        return PosixTree(reader, writer, Group(self._places, job.folder.name), job.limits, self._yields)

    def cpu_s(self) -> float:
        with suppress(OSError):  # no file descriptor left: as it was
            process = processes.look(self._process.pid) if self._process else None
            self._cpu_s = process.cpu_s if process else 0.0
        return self._cpu_s

    def close(self) -> None:
        """Guards kill what still runs, and the launcher ends after the last of them."""
        if self._socket:
            self._socket.close()
        self._socket = None

    @property
    def _places(self) -> Places:
        """Where attempts have their control groups; claimed for the first one."""
        if self._claimed is None:
            self._claimed = delegation.claim(self._yields) if sys.platform == "linux" else {}
        return self._claimed

    def _order(self, job: Job) -> Order:
        """What the guard is told."""
        limits: dict[str, int | None] = {
            "memory_bytes": job.limits.memory_bytes,
            "processes": job.limits.processes,
            "file_bytes": job.limits.scratch_bytes,
        }
        if "pids" not in self._places and job.limits.processes:  # a stop for what is faster than we watch
            limits["user_threads"] = self._users_threads.now() + 2 * job.limits.processes
        return {
            "command": list(job.command),
            "sandbox": self._sandbox.options(job) if self._sandbox else [],
            "folder": str(job.folder),
            "environment": job.environment,
            "yields": self._yields,
            "name": job.folder.name,
            "places": self._places,
            "limits": limits,
        }

    def _hand_over(self, files: list[int]) -> None:
        if self._socket:
            with suppress(ConnectionError):
                socket.send_fds(self._socket, [b"+"], files)
                return
        self._open()
        assert self._socket
        socket.send_fds(self._socket, [b"+"], files)

    def _open(self) -> None:
        self.close()
        if self._process:
            self._process.poll()
        self._socket, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(int(self._yields)), *sorted(set(self._places.values()))]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments],
                pass_fds=[theirs.fileno()], cwd="/", start_new_session=True,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        descriptors.as_it_was(self._process.pid)


class PosixTree:
    """One attempt, by way of its guard."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, group: Group, limits: Limits, yields: bool
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._group = group
        self._limits = limits
        self._yields = yields
        self._guard = 0
        self._low_sessions: set[int] = set()
        self._is_frozen = False
        self._must_thaw = False  # it could not be, the last time
        self._has_ended = False
        self._seen_cpu_s: dict[int, float] = {}  # of processes that are to stop
        self._used = _UsedByTree()
        self._usage = Usage()

    def kill(self) -> None:
        self._writer.write_eof()

    def freeze(self) -> None:
        self._set_frozen(True)

    def thaw(self) -> None:
        self._set_frozen(False)

    def follow(self) -> None: ...

    def is_still(self) -> bool:
        """Stopped, or without processor time since the last call: it is waiting for its turn to stop.

        A process that is told to stop never again runs a line of its program; but on a busy computer one of the
        lowest priority may wait long until it shows. What cannot be seen is not known to stand still.
        """
        if not self._guard or sys.platform != "linux":  # elsewhere, signalled is all that can be known
            return bool(self._guard)
        if self._has_ended:
            return True
        try:
            if self._group.is_frozen():
                return True
            tree = _tree_of(self._guard)
        except OSError:
            return False
        before, self._seen_cpu_s = self._seen_cpu_s, {process.pid: process.cpu_s for process in tree}
        still = [process.state in _STOPPED or before.get(process.pid) == process.cpu_s for process in tree]
        return bool(still) and all(still)

    def count(self) -> int:
        if sys.platform != "linux":
            return usage_of(self._guard).processes if self._guard else 0
        with suppress(OSError):
            return sum(process.state not in "ZX" for process in _tree_of(self._guard)) if self._guard else 0
        return 0

    def measure(self) -> Usage:
        if not self._guard:
            return Usage()
        if self._must_thaw:
            self._set_frozen(False)
        with suppress(OSError):  # no file descriptor left: as it was
            self._usage = self._measure()
        return self._usage

    def _measure(self) -> Usage:
        if sys.platform != "linux":
            return usage_of(self._guard)
        cpu_s, memory_bytes, number = self._group.cpu_s(), self._group.memory_bytes(), self._group.processes()
        if self._yields or cpu_s is None or memory_bytes is None or number is None:
            seen = self._measure_tree()
            cpu_s = seen.cpu_s if cpu_s is None else cpu_s
            memory_bytes = seen.memory_bytes if memory_bytes is None else memory_bytes
            number = seen.processes if number is None else number
        return Usage(cpu_s, memory_bytes, number, _breach(self._group.breach()))

    async def wait(self) -> Ended:
        ended = Ended(trouble="its guard was killed")
        try:
            while line := await self._reader.readline():
                ended = self._heed(json.loads(line)) or ended
        except ConnectionError:
            pass
        finally:
            self._writer.close()
        return ended

    def _heed(self, message: dict[str, Any]) -> Ended | None:
        """What a guard's word means for the end; None for those before it."""
        if "guard" in message:
            self._guard = message["guard"]
            self._low_sessions.add(message["session"])
            if self._is_frozen:
                self._set_frozen(True)
            return None
        self._has_ended = True
        if "errno" not in message:
            return Ended(**message | {"breach": _breach(message.get("breach", ""))})
        number, reason = message["errno"], message["reason"]
        if number == 0 or number in _OUR_MISTAKES:
            return Ended(trouble=f"cannot start a task: {reason}")
        return Ended(exit_code=127 if number == errno.ENOENT else 126, refusal=reason)

    def _set_frozen(self, frozen: bool) -> None:
        """Now, or as soon as it runs; where we lack the means, again when it is next looked at."""
        self._is_frozen = frozen
        if not frozen:
            self._seen_cpu_s.clear()
        if not self._guard:
            return
        try:
            if frozen:
                self._stop()
            else:
                self._go_on()
            self._must_thaw = False
        except OSError:
            self._must_thaw = not frozen

    def _stop(self) -> None:
        if not self._group.freeze(True):
            _signal_all(self._guard, signal.SIGSTOP)

    def _go_on(self) -> None:
        """By both means, for either may have stopped some of it. OSError where it may still stand."""
        is_thawed = self._group.freeze(False)
        _signal_all(self._guard, signal.SIGCONT)
        if not is_thawed and self._group.is_told_to_freeze():
            raise OSError("its control group is still frozen")

    def _measure_tree(self) -> Usage:
        guard = processes.look(self._guard)
        if guard is None:
            return Usage()
        tree = _tree_of(guard.pid)
        if self._yields:
            self._keep_low(tree)
        cpu_s = self._used.cpu_s(guard, tree)
        memory_bytes, limit_bytes = sum(process.memory_bytes for process in tree), self._limits.memory_bytes
        if limit_bytes is not None and memory_bytes > limit_bytes:  # much of it may be shared
            memory_bytes = sum(processes.own_memory_bytes(process.pid) for process in tree)
        return Usage(cpu_s, memory_bytes, sum(process.threads for process in tree))

    def _keep_low(self, tree: list[processes.Process]) -> None:
        """Lower the sessions that the task opened for itself."""
        for process in tree:
            if process.session not in self._low_sessions and priority.lower_session(process.pid):
                self._low_sessions.add(process.session)


class _UsedByTree:
    """CPU time of a whole tree, with that of processes whose parents do not wait for them (SIGCHLD ignored).

    What is waited for is found again in a parent's account; what goes and is not was lost, and is remembered here.
    """

    def __init__(self) -> None:
        self._lost_cpu_s = 0.0
        self._seen_cpu_s: dict[int, float] = {}  # each one's own, and of those that it had waited for
        self._seen_waited_s: dict[int, float] = {}

    def cpu_s(self, guard: processes.Process, tree: list[processes.Process]) -> float:
        """Until now; what came and went since the last look is missing."""
        now_s = {process.pid: process.cpu_s + process.waited_cpu_s for process in tree}
        waited_s = {process.pid: process.waited_cpu_s for process in (guard, *tree)}
        gone_s = sum(used_s for pid, used_s in self._seen_cpu_s.items() if pid not in now_s)
        found_s = sum(s - self._seen_waited_s[pid] for pid, s in waited_s.items() if pid in self._seen_waited_s)
        self._lost_cpu_s += max(0.0, gone_s - max(0.0, found_s))
        self._seen_cpu_s, self._seen_waited_s = now_s, waited_s
        return guard.waited_cpu_s + sum(now_s.values()) + self._lost_cpu_s


def _tree_of(guard: int) -> list[processes.Process]:
    """What is below a guard. OSError where it cannot be looked at."""
    return [process for pid in processes.descendants(guard) if (process := processes.look(pid))]


def _signal_all(guard: int, signum: int) -> None:
    """Signal all below a guard, and what they start meanwhile. OSError where it cannot be looked at."""
    if sys.platform != "linux":
        _signal_without_proc(guard, signum)
        return
    done: set[int] = set()
    while fresh := set(processes.descendants(guard)) - done:
        for pid in fresh:
            with suppress(OSError):
                os.kill(pid, signum)
        done |= fresh


def _signal_without_proc(guard: int, signum: int) -> None:
    """The process groups of the guard's children at one stroke, then whoever else psutil finds below it."""
    with suppress(psutil.Error):
        root = psutil.Process(guard)
        groups = {group for child in root.children() if (group := _group_of(child.pid)) and group != _group_of(guard)}
        for group in groups:
            with suppress(OSError):
                os.killpg(group, signum)
        for process in root.children(recursive=True):
            if _group_of(process.pid) not in groups:
                with suppress(psutil.Error, OSError):
                    process.send_signal(signum)


def _group_of(pid: int) -> int:
    """0 where it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


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


def _breach(name: str) -> Breach | None:
    return Breach(name) if name else None
