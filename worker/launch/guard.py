"""The guard of one attempt: starts the task, and sees to it that nothing of the task outlives it.

It speaks lines of JSON with the agent over its own connection. In: one line, the job. Hanging up (or dying) is the
agent's order to kill. Out: ``{"guard": ..., "session": ...}`` once the task runs, and at the very end, when nothing
is left, how it went. A guard that could not start its task says ``{"errno": ..., "reason": ...}`` or
``{"trouble": ...}`` and ends.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from contextlib import suppress

from worker.launch import kinship, processes
from worker.launch.groups import Group
from worker.launch.spawn import SpawnError, spawn
from worker.launch.wakeup import Wakeup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from worker.launch.spawn import Job

_RETRY_S = 0.02
_TRIES = 100
_DEAD = "ZX"
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def say(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Guard:
    def __init__(self, connection: int, stdout: int, stderr: int) -> None:
        self._agent = socket.socket(fileno=connection)
        self._outputs = (stdout, stderr)
        self._task = 0
        self._status: int | None = None  # of the task, once it ended
        self._killed = False
        self._strays = 0
        self._is_walled = False
        self._group = Group({}, "")

    def run(self) -> None:
        job = self._hear()
        if not job:
            return
        kinship.adopt_orphans()
        wakeup = Wakeup(self._agent)
        if not self._start(json.loads(job)):
            self._remove_group(wakeup)
            return
        for output in self._outputs:
            os.close(output)
        self._say({"guard": os.getpid(), "session": os.getsid(0)})
        os.setsid()  # out of the low session that the task stays in: see priority.py
        self._watch(wakeup)
        self._clear(wakeup)
        self._say(self._account())
        self._remove_group(wakeup)

    def _start(self, job: Job) -> bool:
        self._is_walled = bool(job["sandbox"])
        self._group = Group(job["places"], job["name"])
        try:
            self._group.make(job["limits"].get("memory_bytes"), job["limits"].get("processes"))
            self._task = spawn(job, self._group, *self._outputs)
        except SpawnError as error:
            self._say({"errno": error.number, "reason": error.reason})
            return False
        except OSError as error:
            self._say({"trouble": f"cannot start a process: {error.strerror}"})
            return False
        return True

    def _hear(self) -> bytes:
        """The job's line; empty where the agent hung up before it was complete."""
        line = bytearray()
        while not line.endswith(b"\n"):
            part = self._agent.recv(65536)
            if not part:
                return b""
            line += part
        return bytes(line)

    def _say(self, message: dict[str, object]) -> None:
        with suppress(OSError):  # the agent is gone: nobody to tell
            self._agent.sendall(say(message))

    def _watch(self, wakeup: Wakeup) -> None:
        """Until the task ended or has to."""
        while self._reap() and self._status is None and not self._killed:
            if wakeup.wait():
                self._reap()
                self._killed = self._status is None

    def _clear(self, wakeup: Wakeup) -> None:
        """Kill all that there is of the attempt, until the kernel says that we have no children left.

        A killed process can fork no more, and its children become ours: every round leaves fewer.
        """
        if not self._killed:
            with suppress(OSError):
                self._strays = self._count_strays()
        self._group.kill()
        with suppress(OSError):
            os.killpg(self._task, signal.SIGKILL)  # at one stroke; off Linux, all that can be found
        while self._reap():
            with suppress(OSError):  # no file descriptor left: soon again
                for pid in processes.descendants(os.getpid()):
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            wakeup.pause(_RETRY_S)

    def _count_strays(self) -> int:
        """What the task has left running; not the first process of its sandbox, below which all of it is."""
        first = set(processes.children(os.getpid())) if self._is_walled else set()
        found = (processes.look(pid) for pid in processes.descendants(os.getpid()) if pid not in first)
        return sum(process is not None and process.state not in _DEAD for process in found)

    def _remove_group(self, wakeup: Wakeup) -> None:
        """The dead may stay in it for a moment."""
        for _ in range(_TRIES):
            if self._group.remove():
                return
            wakeup.pause(_RETRY_S)

    def _reap(self) -> bool:
        """Take leave of every child that ended; False when none is left."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self._task:
                    self._status = status
                if pid == 0:
                    return True
        return False

    def _account(self) -> dict[str, object]:
        assert self._status is not None
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "exit_code": os.waitstatus_to_exitcode(self._status),
            "killed": self._killed,
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_memory_bytes": used.ru_maxrss * _MAXRSS_UNIT,  # of the largest process
            "breach": self._breach(),
            "strays": self._strays,
            "overhead_s": time.process_time(),
            "system_s": used.ru_stime,
        }

    def _breach(self) -> str:
        """The limit that a task hit which did not end well."""
        assert self._status is not None
        if os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) == signal.SIGXFSZ:
            return "scratch"
        with suppress(OSError):  # no file descriptor left
            return self._group.breach() if self._status else ""
        return ""
