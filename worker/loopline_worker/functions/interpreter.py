"""An interpreter: a process tree that runs the calls of one task after the other, and is paused between them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from loopline_worker.attempts import scratch
from loopline_worker.functions.append_files import AppendFile, file_of
from loopline_worker.functions.channel import Channel
from loopline_worker.launch.interface import Ended, Job, Launcher, Tree
from loopline_worker.timings import INTERPRETER_PAUSE_AFTER_S

PROGRAM = Path(__file__).parent / "program" / "call_loop.py"
_LONGEST_LINE_BYTES = 2**15
"""The socket's buffer is larger: it takes a line at once, or the interpreter does not read."""
_TRIES = 100
_RETRY_S = 0.01
_LOOKS_AT_STRAYS = 5
_LONGEST_REASON = 400
_MOST_CPU_S = 1e9
_UNSEEN_CPU_S = 0.1
"""The system counts in ticks: an interpreter may report so much more than was measured, in all its life."""
_MOST_BYTES = 2**50
_END_WITHIN_S = 1.5
"""Time in which an interpreter that has closed its socket has to end, before it is killed."""


@dataclass(slots=True)  # not frozen: that makes the making of one twice as expensive
class CallReply:
    """An interpreter's reply about the calls of one task."""

    exit_code: int
    reason: str = ""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    strays: int = 0  # at the first look


class Interpreter:
    """A running interpreter with the files that it writes to; ``on_end`` is called once nothing of it is left."""

    def __init__(
        self,
        tree: Tree,
        channel: Channel,
        key: Hashable,
        folder: Path,
        *,
        files: tuple[AppendFile, AppendFile, AppendFile],
        on_end: Callable[[Interpreter], None],
    ) -> None:
        self.key = key
        self.folder = folder
        self.tree = tree
        self.used_cpu_s = 0.0  # by calls that have ended
        self.is_ready = False
        self.is_frozen = False
        self.may_request_network = False  # as of a job
        self._is_killed = False  # it may take a moment
        self.functions: set[str] = set()  # that it keeps
        self.stdout, self.stderr, self.results = files
        self._has_results = True
        self._holders = 1  # this object itself, until the tree has ended
        self._call_folder = ""  # the last call's folder
        self._clean_folder = ""  # the same, if nothing was left in it
        self._request: Mapping[str, Any] = {}  # the last one
        self._requested_at = 0.0
        self._pid_at_request = 0  # the system's last process id
        self._channel = channel
        self._own_processes = 0  # while no call runs
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._end = asyncio.create_task(self._watch_end(on_end))

    @classmethod
    async def start(cls, launcher: Launcher, job: Job, key: Hashable, on_end: Callable[[Interpreter], None]) -> Self:
        """Start an interpreter with the job's folder, limits and environment. Raises OSError."""
        folder = Path(job.folder)
        scratch.make(folder)
        program = folder / ".interpreter.py"  # where a sandbox shows it
        shutil.copyfile(PROGRAM, program)
        with ExitStack() as on_failure:
            files: list[AppendFile] = []
            for _ in range(3):
                files.append(AppendFile(folder))
                on_failure.callback(files[-1].close)
            ours, theirs = socket.socketpair()
            on_failure.callback(ours.close)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _LONGEST_LINE_BYTES)
            with theirs:
                own = replace(job, command=[*job.command, str(program)], makes_folder=False)
                tree = await launcher.start(own, theirs.fileno(), files[1].file)
            on_failure.pop_all()
        written = files[0], files[1], files[2]
        interpreter = cls(tree, Channel(ours), key, folder, files=written, on_end=on_end)
        interpreter.may_request_network = own.may_request_network
        with suppress(OSError):  # it is gone, as the first call will find
            interpreter._channel.send(b"{}", [files[0].file, files[2].file])
        return interpreter

    @property
    def has_ended(self) -> bool:
        """True if it runs no more calls."""
        return self._is_killed or self._end.done() or not self._channel.is_open

    @property
    def has_clean_folder(self) -> bool:
        """True if the last call's folder can serve the next call."""
        return bool(self._clean_folder)

    def make_folder(self, folder: str) -> None:
        """Make the next call's folder, or rename the last call's clean one. Raises OSError if there is no room."""
        clean, self._clean_folder, self._call_folder = self._clean_folder, "", folder
        if clean:
            try:
                os.rename(clean, folder)  # noqa: PTH104 - it is text
                return
            except OSError:
                scratch.remove(Path(clean))
        scratch.make(Path(folder))
        self.tree.lend(folder)

    def leave_folder(self) -> None:
        """Keep the last call's folder from serving the next call, because there may be something in it."""
        self._clean_folder = ""

    async def call(self, message: dict[str, Any], files: Sequence[int]) -> CallReply | Ended:
        """Run the calls of a task. Return the reply, or how the interpreter ended if it did not reply."""
        if not await self.get_ready():
            return await self._end_without_reply()
        self._request, self._requested_at, self._pid_at_request = message, time.monotonic(), _last_pid()
        try:
            self._send(message, files)
        except OSError:
            self.kill()
        reply = await self._channel.next_reply()
        if reply is None:
            return await self._end_without_reply()
        checked = self._take_in(reply)
        if isinstance(checked, CallReply) and checked.strays:
            checked.strays = await self._count_strays()
        return checked

    async def get_ready(self) -> bool:
        """Wait for its first line, and until its supervisor has said who runs it. False if it has ended before."""
        if self.is_ready:
            return True
        if not await self._channel.next_reply():
            return False
        self.is_ready = True
        for _ in range(_TRIES):  # it may be ready before its supervisor has reported its start
            self._own_processes = self.tree.count()
            if self._own_processes:
                break
            await asyncio.sleep(_RETRY_S)
        return True

    def _send(self, message: dict[str, Any], files: Sequence[int]) -> None:
        """Send a message, a long one as a file: the socket takes only part of it at once. Raises OSError."""
        line = json.dumps(message).encode()
        if len(line) <= _LONGEST_LINE_BYTES:
            self._channel.send(line, files)
            return
        file = file_of(line, self.folder)
        try:
            self._channel.send(b"{}", [file, *files])
        finally:
            os.close(file)

    def _take_in(self, reply: dict[str, Any]) -> CallReply | Ended:
        """Check a reply, and account for the call."""
        try:
            checked = _checked(reply)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            self.kill()
            return Ended(exit_code=1, reason="the Python process sent an invalid reply")
        if reply.get("is_loaded") is True:
            self.functions.add(self._request["function"])
        if "forgotten" in reply:
            self.functions.discard(str(reply["forgotten"]))
        if reply.get("is_clean") is True and self._request["folder"] == self._call_folder:
            self._clean_folder = self._call_folder
        self._account(checked)
        return checked

    def start_idle_timer(self) -> None:
        """Pause it soon unless a call comes, with all that calls have left running in it."""
        self._idle_since = time.monotonic()
        if self._idle_timer is None:
            self._pause_in(INTERPRETER_PAUSE_AFTER_S)

    def resume(self) -> None:
        """Undo the pause, for a call."""
        self._idle_since = None  # the timer finds that out: most calls are followed by another one
        if self.is_frozen:
            self.is_frozen = False
            self.tree.thaw()

    def kill(self) -> None:
        """Kill it with all that it has started."""
        self._is_killed = True
        if self._idle_timer:
            self._idle_timer.cancel()
        if not self._end.done():
            self.tree.kill()

    async def ended(self) -> Ended:
        """Wait for the end of its tree."""
        return await asyncio.shield(self._end)

    def clear(self) -> None:
        """Clear the files it writes to, once all was read.

        Those that a function may truncate keep nothing: what is unread in them would be looked for behind it.
        """
        self.stdout.clear(keeps_bytes=0)
        self.stderr.clear(keeps_bytes=0)
        self.results.clear()

    def take_results(self) -> AppendFile:
        """Return the results of an interpreter that has ended; the file becomes the caller's, to close."""
        self._has_results = False
        return self.results

    def hold(self) -> None:
        """Keep its files open, until they are released as often."""
        self._holders += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        self._holders -= 1
        if not self._holders:
            for file in (self.stdout, self.stderr, *([self.results] if self._has_results else [])):
                file.close()

    def remove(self) -> None:
        """Remove its folders."""
        scratch.remove(self.folder)
        if self._clean_folder:
            scratch.remove(Path(self._clean_folder))

    def _account(self, reply: CallReply) -> None:
        """Correct the CPU time in a reply, and look for surviving processes if any process was started.

        The function may have changed the program that replies. Its CPU time is compared with the measured one if it
        is more than one core has.
        """
        cpu_s = reply.cpu_s
        if cpu_s > self.used_cpu_s + time.monotonic() - self._requested_at:
            cpu_s = min(cpu_s, self.tree.measure().cpu_s + _UNSEEN_CPU_S)
        before_s, self.used_cpu_s = self.used_cpu_s, max(cpu_s, self.used_cpu_s)
        reply.cpu_s = self.used_cpu_s - before_s
        reply.strays = 0 if 0 < self._pid_at_request == _last_pid() else self._strays()

    def _strays(self) -> int:
        return max(0, self.tree.count() - self._own_processes) if self._own_processes else 0

    async def _count_strays(self) -> int:
        """Count the processes that the call has left; those that are just ending do not count."""
        for _ in range(_LOOKS_AT_STRAYS - 1):
            await asyncio.sleep(_RETRY_S)
            if not (strays := self._strays()):
                break
        return strays

    async def _end_without_reply(self) -> Ended:
        """Return how it ended, as the reason for the missing reply."""
        try:
            async with asyncio.timeout(_END_WITHIN_S):
                ended = await self.ended()
        except TimeoutError:  # it has closed the socket, and goes on
            self.tree.kill()
            ended = await self.ended()
        used_s = max(0.0, ended.cpu_s - self.used_cpu_s)
        return replace(ended, cpu_s=used_s)

    async def _watch_end(self, on_end: Callable[[Interpreter], None]) -> Ended:
        try:
            return await self.tree.wait()
        finally:
            self._channel.close()
            self.release()
            asyncio.get_running_loop().call_soon(on_end, self)

    def _pause_in(self, seconds: float) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(seconds, self._pause_if_idle)

    def _pause_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None or self._end.done():
            return
        left_s = self._idle_since + INTERPRETER_PAUSE_AFTER_S - time.monotonic()
        if left_s > 0:
            self._pause_in(left_s)
        else:
            self.tree.freeze()
            self.is_frozen = True


class _LastPid:
    """The last process id that the system assigned, which shows if any process or thread was started since.

    The id is 0 where the system does not report it.
    """

    def __init__(self) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open("/proc/loadavg", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __call__(self) -> int:
        if self._file < 0:
            return 0
        try:
            return int(os.pread(self._file, 100, 0).rsplit(None, 1)[-1])
        except (OSError, ValueError):
            return 0


_last_pid = _LastPid()


def _checked(line: dict[str, Any]) -> CallReply:
    """Return a reply that the master accepts. Raises an error if the line is not one (see ``call``)."""
    reason = printable(str(line["reason"]))
    reply = CallReply(int(line["exit_code"]), reason, float(line["cpu_s"]), int(line["peak_memory_bytes"]))
    if reply.exit_code not in (0, 1) or not 0 <= reply.cpu_s <= _MOST_CPU_S:
        raise ValueError("out of bounds")
    if not 0 <= reply.peak_memory_bytes <= _MOST_BYTES:
        raise ValueError("out of bounds")
    return reply


def printable(reason: str) -> str:
    """Return a text that can be shown, of limited length: an exception's text may hold anything."""
    if reason.isascii() and reason.isprintable():
        return reason[:_LONGEST_REASON]
    reason = reason.encode(errors="replace").decode()
    return "".join(letter if letter.isprintable() else " " for letter in reason)[:_LONGEST_REASON]
