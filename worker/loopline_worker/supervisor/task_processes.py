"""All processes of one task, as the process sees them that starts, adopts and reaps them.

That is the supervisor, or the first process of a sandbox (``walls/cell_init.py``).
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from loopline_worker.supervisor import priority, processes
from loopline_worker.supervisor.intervals import RETRY_S
from loopline_worker.supervisor.spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loopline_worker.supervisor.orders import TaskOrder
    from loopline_worker.supervisor.selector import Selector
    from loopline_worker.supervisor.users.credentials import TaskUser

_DEAD = "ZX"
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class TreeEnd:
    """The end of a task and the resources it used. ``status`` is that of wait(2)."""

    __slots__ = ("failure", "is_lost", "overhead_s", "peak_memory_bytes", "status", "strays", "system_s", "user_s")

    def __init__(
        self,
        status: int,
        user_s: float = 0.0,
        system_s: float = 0.0,
        peak_memory_bytes: int = 0,
        strays: int = 0,
        overhead_s: float = 0.0,
    ) -> None:
        self.status = status
        self.user_s = user_s
        self.system_s = system_s
        self.peak_memory_bytes = peak_memory_bytes  # of the largest process
        self.strays = strays
        self.overhead_s = overhead_s  # of the first process of a sandbox
        self.is_lost = False  # not by its own doing: its sandbox was killed
        self.failure: dict[str, Any] = {}  # why it could not be started, as the report has it

    def to_tuple(self) -> tuple[int, float, float, int, int, float]:
        """Return the fields in the order of the parameters."""
        return self.status, self.user_s, self.system_s, self.peak_memory_bytes, self.strays, self.overhead_s


class TaskProcesses:
    """Starts one task after the other, and lets nothing of it outlive it."""

    def __init__(self, selector: Selector, user: TaskUser | None = None) -> None:
        """``user``: whom tasks run as; None: the user of this process."""
        self.selector = selector
        self._user = user
        self._is_first = os.getpid() == 1  # of a process namespace that holds only the task
        self._oom_score = priority.RaisedOomScore()
        self._task = 0
        self._status: int | None = None
        self._has_children = True
        self._user_s = self._system_s = 0.0
        self._peak_memory = 0

    def start(self, order: TaskOrder, stdout: int, stderr: int) -> None:
        """Start the task. Raises OSError or ValueError if it cannot be run."""
        self._task, self._status, self._has_children = 0, None, True
        self._user_s = self._system_s = 0.0
        self._peak_memory = 0
        with self._oom_score:
            self._task = spawn(order, stdout, stderr, self._user)

    def confirm(self) -> bool:
        """True: the task runs."""
        return True

    @property
    def has_ended(self) -> bool:
        """True once its first process has ended."""
        return self._status is not None

    def reap(self) -> bool:
        """Reap every child that ended. False if none is left."""
        self._has_children = True
        try:
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._task:
                    self._status = status
                self._user_s += used.ru_utime
                self._system_s += used.ru_stime
                self._peak_memory = max(self._peak_memory, used.ru_maxrss)
        except ChildProcessError:
            self._has_children = False
        return self._has_children

    def end(self, killed: bool) -> TreeEnd:
        """Kill the rest of the task, until the kernel reports that this process has no children.

        ``killed``: the remaining processes do not count as left behind, because the task itself was killed.
        """
        strays = 0
        if self._has_children:
            if not killed:
                with suppress(OSError):
                    strays = self._count_strays()
            self._kill_rest()
        assert self._status is not None
        return TreeEnd(self._status, self._user_s, self._system_s, self._peak_memory * _MAXRSS_UNIT, strays)

    def _kill_rest(self) -> None:
        """A killed process can fork no more, and its children become ours: every round leaves fewer."""
        with suppress(OSError):
            os.killpg(self._task, signal.SIGKILL)  # all at once; on other systems, all visible ones
        while self.reap():
            with suppress(OSError):  # no file descriptor left: soon again
                for pid in [-1] if self._is_first else processes.descendants(os.getpid()):
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            self.selector.wait_for_child(RETRY_S)

    def _count_strays(self) -> int:
        """Count what the task left running."""
        found = (processes.status(pid) for pid in processes.descendants(os.getpid()))
        return sum(process is not None and process.state not in _DEAD for process in found)
