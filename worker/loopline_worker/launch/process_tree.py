"""Process tree of one attempt on POSIX, as the agent sees it through the supervisor."""

from __future__ import annotations

import asyncio
import errno
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from loopline_worker.launch import open_files
from loopline_worker.launch.hold import Hold, kill
from loopline_worker.launch.interface import Ended, Limits, PrefetchListener, Usage
from loopline_worker.launch.portable_family import signal_all, usage_of
from loopline_worker.launch.sinks import Sink
from loopline_worker.supervisor import control_groups, priority, processes
from loopline_worker.supervisor.control_groups import ControlGroup, Hits
from loopline_worker.supervisor.family import for_all, tree_of
from loopline_worker.supervisor.orders import Breach, TaskOrder

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId

_STOPPED = "TtZX"  # dead ones included
_LARGE_BYTES = 2**27
"""A smaller process is not worth killing when memory runs out."""
_OUR_MISTAKES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class TreeLink(Protocol):
    """The link that the tree is queued at (``supervisor_link.SupervisorLink``)."""

    root: int
    session: int
    group: ControlGroup
    hits: Hits
    past_cpu_s: float
    task_group: int
    signal: Callable[[int, int, Sequence[int]], int] | None
    lessor: Callable[[str], socket.socket] | None

    @property
    def last(self) -> PosixTree | None:
        """The latest task."""

    def retract_prefetched(self) -> None:
        """Retract what has not started: from now on only the last of the rest may run."""

    def request(self, word: str | float, number: int) -> None:
        """Send a request for one of the tasks."""

    def request_confirmation(self) -> None:
        """Have the supervisor report when the last task runs."""

    def close(self) -> None:
        """Hang up."""


class PosixTree:
    """Task at a supervisor.

    ``sinks`` receive stdout and stderr (none if the task writes to files). Tasks may be prefetched behind one with a
    ``name``. One that is prefetched itself has a ``listener``, which is called with its name.
    """

    link: TreeLink
    number = 0  # of the order, at its supervisor

    def __init__(
        self,
        order: TaskOrder,
        sinks: Sequence[Sink],
        limits: Limits,
        *,
        yields: bool,
        name: AttemptId | None = None,
        listener: PrefetchListener | None = None,
    ) -> None:
        self.order = order
        self.name = name
        self.listener = listener
        self.is_frozen = False  # or is to be
        self.started_at = math.inf  # by ``time.monotonic``
        self._sinks = sinks
        self._limits = limits
        self._yields = yields
        self._low_sessions: set[int] = set()
        self._is_in_frozen_group = False  # or was
        self._must_thaw = False  # the last attempt to thaw it failed
        self._hold: Hold | None = None  # while a snapshot needs it to be still
        self._seen_cpu_s: dict[int, float] = {}  # of processes that are to stop
        self._past_cpu_s = 0.0  # of its supervisor's tasks, as it started
        self._cpu_time: TreeCpuTime | None = None  # once it is measured
        self._shares: MemoryShares | None = None  # read once the tree seems to be above its limit
        self._hits = 0, 0
        self._usage = Usage()
        self.has_ended = False
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """Kill it from here, because its supervisor has as low a priority; that one ensures that nothing is left."""
        if self.has_ended:
            return
        self.link.retract_prefetched()
        if self.link.last is not self:  # it has ended, or was prefetched itself
            return
        self.link.request("kill", self.number)
        if self._root:  # while its process id is not known, nothing runs yet
            with suppress(OSError):
                self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM to all of its processes; kill it if it may not have begun."""
        if self.has_ended:
            return
        self.link.retract_prefetched()
        if self.link.last is not self or not self._root:
            self.kill()
            return
        with suppress(OSError):
            self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Freeze what runs in its slot, for this task may have ended just now."""
        if not self.has_ended:
            self.link.retract_prefetched()
            self._set_frozen(True)

    def thaw(self) -> None:
        """Let it go on, once it is not held any more."""
        if self._hold:
            self.is_frozen, self._hold.must_thaw = False, True
        else:
            self._set_frozen(False)

    def hold(self) -> bool:
        """Stop its processes until ``release``, beside any freeze. False if that is impossible.

        Unlike a freeze it is for some milliseconds, and leaves alone what the task itself has stopped.
        """
        if self.has_ended or not self._root or sys.platform != "linux":
            return False
        try:
            self._hold = Hold(self._root, self._group, self._kill)
        except OSError:  # no file descriptor left
            self._must_thaw = not self.is_frozen
            return False
        self._is_in_frozen_group |= self._hold.has_group
        return True

    def is_held(self) -> bool:
        """True if none of its threads can run before ``release``."""
        return self._hold is not None and not self.has_ended and self._hold.is_complete()

    def release(self) -> None:
        """Undo ``hold``. It continues unless it is frozen."""
        hold, self._hold = self._hold, None
        if hold is None or self.has_ended or self.is_frozen:
            return
        if hold.must_thaw:
            self._set_frozen(False)
        else:
            self._must_thaw = not hold.release()

    def follow(self) -> None:
        """Have the supervisor pass on its output as it comes."""
        if not self.has_ended:
            self.link.request("follow", self.number)

    def extend(self, ends_at: float) -> None:
        """Have the supervisor kill it then, and no earlier (``Job.ends_at``)."""
        if not self.has_ended:
            self.link.request(ends_at, self.number)

    def lend(self, folder: str) -> None:
        """Let its processes use a folder that the agent made for them. Raises OSError."""
        if self.link.task_group:
            from loopline_worker.supervisor.users import folders  # which an agent without such users never loads

            folders.lend(folder, self.link.task_group)

    def is_still(self) -> bool:
        """True if each process is stopped, or has had no processor time since the last call.

        A process that is to stop never again runs a line of its program. But on a busy computer a process of the
        lowest priority may wait long for its turn to stop. A process that cannot be read is not taken for stopped.
        """
        if self.has_ended:
            return True
        if not self._root or sys.platform != "linux":  # on other systems only the signal is known
            return bool(self._root)
        try:
            tree, stopped = tree_of(self._root), self._group.stopped()
        except OSError:
            return False
        before, self._seen_cpu_s = self._seen_cpu_s, {process.pid: process.cpu_s for process in tree}
        still = [
            process.state in _STOPPED or process.pid in stopped or before.get(process.pid) == process.cpu_s
            for process in tree
        ]
        return bool(still) and all(still)

    def count(self) -> int:
        """Return the number of its living processes; 0 while the supervisor is not known."""
        if not self._root:
            return 0
        if sys.platform != "linux":
            return usage_of(self._root, with_itself=False).processes
        with suppress(OSError):
            return sum(process.state not in "ZX" for process in tree_of(self._root))
        return 0

    def measure(self) -> Usage:
        """Return what it has used until now, and lower sessions that it has opened."""
        if not self._root:
            return Usage()
        if self._must_thaw:
            self._set_frozen(False)
        with suppress(OSError):  # no file descriptor left: as it was
            self._usage = self._measure()
        return self._usage

    async def wait(self) -> Ended:
        """Wait for its end; if that is cancelled, the supervisor kills it."""
        try:
            return await self._ended
        except asyncio.CancelledError:
            self.link.close()  # its waiter is gone: the supervisor kills it
            raise

    # Reports by way of the link.

    def started(self, before: PosixTree | None = None) -> None:
        """The supervisor started this task in the slot of ``before``. If that was frozen, this task is frozen too."""
        self._past_cpu_s, self._cpu_time = self.link.past_cpu_s, None
        self._hits = self.link.hits
        self.started_at = time.monotonic()
        if before and self.listener and self.name and before.name:
            self._is_in_frozen_group, before._is_in_frozen_group = before._is_in_frozen_group, False
            self.listener.begins(self.name, before.name)

    def handle(self, report: dict[str, Any]) -> bool:
        """Take in a report of the supervisor. True if the task has ended."""
        if "stdout" in report:
            self._sinks[0].feed(report.pop("stdout"))
        if "stderr" in report:
            self._sinks[1].feed(report.pop("stderr"))
        if "runs" in report and self.is_frozen:
            self._set_frozen(True)
        return "runs" not in report and bool(report)

    def end(self, report: dict[str, Any]) -> None:
        """Take in the report of the end."""
        self._end(_ended(report))

    def retracted(self) -> None:
        """Note that it was retracted, and will never start."""
        self._end(Ended(killed=True, elapsed_s=0.0, folder_is_left=False))

    def lose(self) -> None:
        """Take note that the supervisor was killed."""
        self._end(Ended(trouble="its supervisor was killed", took_down=True))

    def _end(self, ended: Ended) -> None:
        if self._is_in_frozen_group:  # the next task must not find itself frozen as soon as it is moved there
            self._group.freeze(False)
        self.has_ended = True
        if not self._ended.done():  # it may have been cancelled
            self._ended.set_result(ended)

    # Measuring and stopping.

    @property
    def _root(self) -> int:
        """The process whose children are the task's; 0 before it is known and after the task has ended."""
        return 0 if self.has_ended else self.link.root

    @property
    def _group(self) -> ControlGroup:
        return self.link.group

    def lessor(self, folder: str) -> socket.socket | None:
        """Return the connection to a process that leases its files (``users/leases.py``); None if it needs none."""
        return self.link.lessor(folder) if self.link.lessor else None

    def _kill(self, pids: Sequence[int], signum: int) -> None:
        if self.link.signal:
            self.link.signal(self._root, signum, pids)
        else:
            kill(pids, signum)

    def _signal(self, signum: int) -> int:
        if self.link.signal:
            return self.link.signal(self._root, signum, ())
        return signal_all(self._root, signum)

    def _set_frozen(self, frozen: bool) -> None:
        """Freeze or thaw it, now or as soon as it runs. A thaw that fails is tried again at the next ``measure``."""
        self.is_frozen = frozen
        if not frozen:
            self._seen_cpu_s.clear()
        if self.has_ended:
            return
        try:
            if frozen:
                self._stop()
            else:
                self._continue()
            self._must_thaw = False
        except OSError:
            self._must_thaw = not frozen

    def _stop(self) -> None:
        """Stop it by moving it into a frozen group, or by signals if there is no such group."""
        if not self._root:
            found = 0
        elif self._group.freeze(True):
            self._is_in_frozen_group = True
            found = for_all(self._root, signal.SIGSTOP, self._group.add_to_frozen)
        else:
            found = self._signal(signal.SIGSTOP)
        if not found or self.link.last is not self:  # the task has not started, or had not
            self.link.request_confirmation()

    def _continue(self) -> None:
        """Continue it by both means, for either may have stopped some. Raises OSError if it may still be frozen."""
        is_thawed = self._group.freeze(False)
        if self._root:
            self._signal(signal.SIGCONT)
        if not is_thawed and self._group.is_set_to_freeze():
            raise OSError("its control group is still frozen")

    def _measure(self) -> Usage:
        if sys.platform != "linux":
            return usage_of(self._root, with_itself=False)
        root = processes.status(self._root)
        if root is None:
            return Usage()
        tree = tree_of(root.pid)
        self._keep_low(tree)
        number = self._group.processes()
        number = sum(process.threads for process in tree) if number is None else number
        hit = control_groups.breach(self._hits, self._group.hits())
        pids = [process.pid for process in tree]
        self._cpu_time = self._cpu_time or TreeCpuTime(self._past_cpu_s)
        cpu_s, in_group = self._cpu_time.cpu_s(root, tree), self._group.memory_bytes()
        if in_group is not None:
            return Usage(cpu_s, in_group, number, hit, pids, memory_is_kept=True)
        return Usage(cpu_s, self._memory_bytes(tree), number, hit, pids)

    def _memory_bytes(self, tree: list[processes.Process]) -> int:
        used_bytes, limit_bytes = sum(process.memory_bytes for process in tree), self._limits.memory_bytes
        if limit_bytes is None:
            return used_bytes
        if any(one.memory_bytes > limit_bytes and processes.private_bytes(one.pid) > limit_bytes for one in tree):
            return used_bytes  # of this one alone, shared memory included
        self._shares = self._shares or MemoryShares()
        return self._shares.read([process.pid for process in tree], used_bytes, limit_bytes)

    def _keep_low(self, tree: list[processes.Process]) -> None:
        """Lower the priority of sessions that the task opened for itself; keep its large processes killable first."""
        for process in tree:
            if process.memory_bytes > _LARGE_BYTES:
                priority.raise_oom_score(process.pid)
            is_low = process.session == self.link.session or process.session in self._low_sessions
            if self._yields and not is_low and priority.lower_session(process.pid):
                self._low_sessions.add(process.session)


def _ended(report: dict[str, Any]) -> Ended:
    """Turn a supervisor's report of an end into ``Ended``."""
    if "errno" not in report:
        if "breach" in report:
            report["breach"] = Breach(report["breach"])
        return Ended(**report)
    number, reason, is_left = report["errno"], report["reason"], report["folder_is_left"]
    if number in _OUR_MISTAKES:
        return Ended(trouble=f"cannot start a task: {reason}", folder_is_left=is_left)
    return Ended(exit_code=127 if number == errno.ENOENT else 126, refusal=reason, folder_is_left=is_left)


class TreeCpuTime:
    """CPU time of a whole tree, with that of processes whose parents do not wait for them (SIGCHLD ignored).

    The time of a process that was waited for is found again in its parent's account. The kernel drops the CPU time
    of a child that was not waited for; it is kept here. ``before_s``: the CPU time that the supervisor had
    waited for at the tree's start.
    """

    def __init__(self, before_s: float = 0.0) -> None:
        self._before_s = before_s
        self._lost_cpu_s = 0.0
        self._seen_cpu_s: dict[int, float] = {}  # each process's own, and of the children that it had waited for
        self._seen_waited_s: dict[int, float] = {}

    def cpu_s(self, supervisor: processes.Process, tree: list[processes.Process]) -> float:
        """Return the time until now, without processes that came and went since the last call."""
        now_s = {process.pid: process.cpu_s + process.waited_cpu_s for process in tree}
        waited_s = {process.pid: process.waited_cpu_s for process in (supervisor, *tree)}
        gone_s = sum(used_s for pid, used_s in self._seen_cpu_s.items() if pid not in now_s)
        found_s = sum(s - self._seen_waited_s[pid] for pid, s in waited_s.items() if pid in self._seen_waited_s)
        self._lost_cpu_s += max(0.0, gone_s - max(0.0, found_s))
        self._seen_cpu_s, self._seen_waited_s = now_s, waited_s
        waited_by_supervisor_s = max(0.0, supervisor.waited_cpu_s - self._before_s)
        return waited_by_supervisor_s + sum(now_s.values()) + self._lost_cpu_s


class MemoryShares:
    """Memory of one tree, with shared memory divided among its processes; read in a separate thread.

    The kernel lets a reader of such figures wait for the process, which may wait for its turn itself: half a minute
    in a fork bomb of the lowest priority. The agent does not wait for them.
    """

    def __init__(self) -> None:
        self._known_bytes: int | None = None
        self._reading: threading.Thread | None = None

    def read(self, pids: Sequence[int], resident_bytes: int, limit_bytes: int) -> int:
        """Return the last reading, and start another one of these processes; before the first, an upper bound.

        ``resident_bytes``: the sum of their memory, with shared memory counted for each. What is in files counts only
        once, mapped or not.
        """
        if self._reading is None or not self._reading.is_alive():
            arguments = pids, resident_bytes, limit_bytes
            self._reading = threading.Thread(target=self._sum, args=arguments, daemon=True)
            self._reading.start()
        return min(resident_bytes, limit_bytes) if self._known_bytes is None else self._known_bytes

    def _sum(self, pids: Sequence[int], resident_bytes: int, limit_bytes: int) -> None:
        try:
            in_files = open_files.memory_bytes(pids)
            own, mapped = resident_bytes, 0
            if resident_bytes + in_files > limit_bytes:
                shares = [processes.memory_shares(pid) for pid in pids]
                if any(map(any, shares)):  # else they are another user's, and cannot be read
                    own, mapped = sum(share[0] for share in shares), sum(share[1] for share in shares)
            self._known_bytes = own + max(mapped, in_files)
        except OSError:  # no file descriptor left: as it was
            return
