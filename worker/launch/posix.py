"""The agent's end of launching on POSIX: hands attempts to the launcher, then speaks with each one's guard."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker.launch import priority, processes
from worker.launch.trees import Ended, Job, Usage, usage_of

_HOME = Path(__file__).parents[2]
_PROGRAM = (
    f"import sys; sys.path.append({str(_HOME)!r}); "
    "from worker.launch.zygote import main; main(*map(int, sys.argv[1:]))"
)
_NEEDED = ("LD_LIBRARY_PATH",)  # by some builds of Python; nothing else, the agent's token least of all
_OUR_MISTAKES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class PosixLauncher:
    """Keeps one launcher process. Guards outlive it: one that was killed is replaced at the next start."""

    def __init__(self, yields: bool) -> None:
        self._yields = yields
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    async def start(self, job: Job, stdout: int, stderr: int) -> PosixTree:
        ours, theirs = socket.socketpair()
        with theirs:
            self._hand_over([theirs.fileno(), stdout, stderr])
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(_line(job, self._yields))
        return PosixTree(reader, writer, self._yields)

    def cpu_s(self) -> float:
        process = processes.look(self._process.pid) if self._process else None
        return process.cpu_s if process else 0.0

    def close(self) -> None:
        """Guards kill what still runs, and the launcher ends after the last of them."""
        if self._socket:
            self._socket.close()
        self._socket = None

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
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(theirs.fileno()), str(int(self._yields))],
                pass_fds=[theirs.fileno()], cwd="/", start_new_session=True,
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip


class PosixTree:
    """One attempt, by way of its guard."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, yields: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._yields = yields
        self._guard = 0
        self._low_sessions: set[int] = set()

    def kill(self) -> None:
        self._writer.write_eof()

    def measure(self) -> Usage:
        if sys.platform != "linux":
            return usage_of(self._guard) if self._guard else Usage()
        guard = processes.look(self._guard) if self._guard else None
        if guard is None:
            return Usage()
        tree = [process for pid in processes.descendants(guard.pid) if (process := processes.look(pid))]
        if self._yields:
            self._keep_low(tree)
        cpu_s = guard.waited_cpu_s + sum(process.cpu_s + process.waited_cpu_s for process in tree)
        return Usage(cpu_s, sum(process.memory_bytes for process in tree))

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
            return None
        if "errno" not in message:
            return Ended(**message)
        number, reason = message["errno"], message["reason"]
        if number == 0 or number in _OUR_MISTAKES:
            return Ended(trouble=f"cannot start a task: {reason}")
        return Ended(exit_code=127 if number == errno.ENOENT else 126, refusal=reason)

    def _keep_low(self, tree: list[processes.Process]) -> None:
        """Lower the sessions that the task opened for itself."""
        for process in tree:
            if process.session not in self._low_sessions and priority.lower_session(process.pid):
                self._low_sessions.add(process.session)


def _line(job: Job, yields: bool) -> bytes:
    message = {
        "command": list(job.command),
        "folder": str(job.folder),
        "environment": job.environment,
        "yields": yields,
    }
    return json.dumps(message).encode() + b"\n"
