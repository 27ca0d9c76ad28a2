"""The calls of one task: from the files that they need to the replies of an interpreter."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from loopline_shared.model import INLINE_LIMIT_BYTES, MAX_INLINE_BYTES, Output
from loopline_shared.paths import TEMPORARY
from loopline_worker.files.downloads import DownloadError
from loopline_worker.functions.interpreter import CallReply, Interpreter
from loopline_worker.functions.pool import InterpreterPool
from loopline_worker.functions.results import NAME, CrashedResults, pieces, write_file
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.launch.interface import Call, Ended, Job, Usage
from loopline_worker.launch.sinks import Sink

_MOST_CRASHES = 100
"""Crashes of one task's calls; the calls after them are not run."""
_FOLLOW_EVERY_S = 0.05
_PARTS_AT_ONCE = 64
_KILLED = "killed by another program, or by the system for lack of memory"


class FileStore(Protocol):
    """The input files on this computer, by their content."""

    def hold(self, sha256: str) -> AbstractAsyncContextManager[Path]:
        """Have the file and keep it for a while. Raises DownloadError or OSError."""


def message_of(job: Job, call: Call) -> dict[str, Any]:
    """Return the message to an interpreter that asks for a task's calls, without files."""
    return {
        "function": call.function,
        "arguments": call.arguments,
        "folder": job.folder,
        "environment": call.environment,
        "value": f"{job.folder}{os.sep}{TEMPORARY}{os.sep}{NAME}",
        "inline": INLINE_LIMIT_BYTES,
        "chunk": call.count is not None,
        "skip": 0,
        "brings": [],
    }


class FunctionCall:
    """The calls of one task, as a tree. Its CPU time and memory are the interpreter's since the call started."""

    def __init__(
        self, job: Job, call: Call, store: FileStore, pool: InterpreterPool, sinks: tuple[Sink, Sink]
    ) -> None:
        self._job = job
        self._call = call
        self._store = store
        self._pool = pool
        self._sinks = sinks  # of stdout and stderr
        self._key = (
            call.session,
            job.room,
            job.limits,
            job.network,
            job.python,
            job.gpus,
        )  # equal for calls that may share an interpreter
        self._interpreter: Interpreter | None = None
        self._crashed = CrashedResults()
        self._is_frozen = False
        self._is_killed = False
        self._is_calling = self._is_terminated = False
        self.has_ended = False
        self._fetching: asyncio.Task[list[int]] | None = None
        self._following: asyncio.Task[None] | None = None

    def kill(self) -> None:
        """Kill the interpreter, or stop fetching files."""
        self._is_killed = True
        if self._fetching:
            self._fetching.cancel()
        elif self._interpreter and not self.has_ended:
            self._interpreter.kill()

    def terminate(self) -> None:
        """Send SIGTERM to the interpreter if it runs the call now; otherwise kill it, or stop fetching files."""
        if self._is_calling and self._interpreter and not self._is_killed:
            self._is_terminated = True
            self._interpreter.tree.terminate()
        else:
            self.kill()

    def freeze(self) -> None:
        """Freeze the interpreter, now or when there is one."""
        self._is_frozen = True
        if self._interpreter and not self.has_ended:
            self._interpreter.tree.freeze()

    def thaw(self) -> None:
        """Undo ``freeze``."""
        self._is_frozen = False
        if self._interpreter and not self.has_ended:
            self._interpreter.tree.thaw()

    def extend(self, ends_at: float) -> None:
        """Have the interpreter's supervisor kill it then, while it runs the call."""
        self._job.ends_at = ends_at
        if self._is_calling and self._interpreter and not self.has_ended:
            self._interpreter.tree.extend(ends_at)

    def lend(self, folder: str) -> None:
        """Let the interpreter use a folder, if there is one."""
        if self._interpreter and not self.has_ended:
            self._interpreter.tree.lend(folder)

    def is_still(self) -> bool:
        """True if no process of it runs any more."""
        return self._interpreter is None or self.has_ended or self._interpreter.tree.is_still()

    def measure(self) -> Usage:
        """Measure it, and pass on its output."""
        if self._interpreter is None or self.has_ended:
            return Usage()
        self._drain()
        usage = self._interpreter.tree.measure()
        return replace(usage, cpu_s=max(0.0, usage.cpu_s - self._interpreter.used_cpu_s))

    def follow(self) -> None:
        """Pass its output on as it comes from now on."""
        if self._following is None and not self.has_ended:
            self._following = asyncio.create_task(self._follow())

    def count(self) -> int:
        """Return the number of processes of the interpreter."""
        return self._interpreter.tree.count() if self._interpreter else 0

    async def wait(self) -> Ended:
        """Run the calls."""
        try:
            return await self._run()
        except asyncio.CancelledError:
            if not self._is_killed:
                raise
            return Ended(killed=True)
        except DownloadError as error:
            return unavailable(error)
        except OSError as error:
            return Ended(trouble=f"cannot call a function here: {error}")
        finally:
            self._end()

    async def _run(self) -> Ended:
        """Run the calls. If one of several crashes its interpreter, another runs those after it."""
        try:
            while True:
                interpreter = await self._acquire()
                try:
                    if ended := await self._run_on(interpreter):
                        return ended
                finally:
                    interpreter.release()
        finally:
            self._crashed.close()

    async def _run_on(self, interpreter: Interpreter) -> Ended | None:
        """Run the calls on one interpreter; None if it crashed, and there are calls left."""
        reply = await self._request(interpreter)
        while self._drain():  # noqa: ASYNC110 - it is more that is drained
            await asyncio.sleep(0)  # others' turn
        if isinstance(reply, CallReply):
            return await self._complete(interpreter, reply)
        if reply.killed or reply.breach or reply.trouble or reply.refusal or self._is_terminated:
            return replace(reply, value=await self._value(interpreter))
        reason = reply.reason or _about_crash(reply, interpreter)
        if self._call.count is None or not interpreter.is_ready:
            return replace(reply, exit_code=reply.exit_code or 1, reason=reason)
        self._crashed.add_crash(interpreter, reason or _KILLED)
        if self._crashed.calls < self._call.count and self._crashed.crashes < _MOST_CRASHES:
            return None
        return replace(reply, exit_code=1, reason=self._crashed.remark, value=await self._value())

    async def _acquire(self) -> Interpreter:
        if interpreter := self._pool.find(self._key):
            self._pool.acquire(interpreter)
        else:
            interpreter = await self._pool.start(self._key, self._job)
        self._use(interpreter)
        return interpreter

    def _use(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._job.may_request_network = interpreter.may_request_network
        interpreter.hold()

    async def _request(self, interpreter: Interpreter) -> CallReply | Ended:
        message, files = message_of(self._job, self._call), list[int]()
        try:
            files = await self._add_files(interpreter, message)
            self._catch_up(interpreter)
        except BaseException:
            _close_files(files)
            self._return(interpreter)
            raise
        try:
            if await interpreter.get_ready():
                if self._job.ends_at is not None and boot_s() >= self._job.ends_at:  # another attempt may run by now
                    interpreter.kill()
                    await interpreter.ended()
                    return Ended(killed=True, expired=True)
                self._make_folder(interpreter)
                self._is_calling = not self._is_killed
                if self._job.ends_at is not None:
                    interpreter.tree.extend(self._job.ends_at)
            return await interpreter.call(message, files)
        finally:
            self._is_calling = False
            if self._job.ends_at is not None:
                interpreter.tree.extend(math.inf)
            _close_files(files)

    def _catch_up(self, interpreter: Interpreter) -> None:
        """Do what was requested before there was an interpreter."""
        if self._is_killed:
            interpreter.kill()
        elif self._is_frozen:
            interpreter.tree.freeze()

    def _make_folder(self, interpreter: Interpreter) -> None:
        """Make the call's folder, for the user that the interpreter has by now. Raises OSError."""
        try:
            if self._job.makes_folder:
                interpreter.make_folder(self._job.folder)
        except OSError:
            self._return(interpreter)
            raise

    async def _add_files(self, interpreter: Interpreter, message: dict[str, Any]) -> list[int]:
        """Open the files that the interpreter does not have, and name them in the message."""
        message["skip"] = self._crashed.calls
        wanted = {} if self._call.function in interpreter.functions else {"function": self._call.function}
        if self._call.arguments_file:
            wanted["arguments"] = self._call.arguments_file
        message["brings"] = list(wanted)
        files: list[int] = []
        if wanted:
            self._fetching = asyncio.create_task(self._open_files(list(wanted.values())))
            if self._is_killed:
                self._fetching.cancel()
            try:
                files = await self._fetching
            finally:
                self._fetching = None
        return files

    async def _open_files(self, names: list[str]) -> list[int]:
        opened: list[int] = []
        try:
            for sha256 in names:
                async with self._store.hold(sha256) as path:
                    opened.append(os.open(path, os.O_RDONLY))  # once open, it may leave the cache
        except BaseException:
            _close_files(opened)
            raise
        return opened

    # Output and results.

    def _drain(self) -> bool:
        """Pass on some of what was written to stdout and stderr. True if there was any."""
        assert self._interpreter
        found = False
        for written, sink in zip((self._interpreter.stdout, self._interpreter.stderr), self._sinks, strict=True):
            for part in islice(written.parts(), _PARTS_AT_ONCE):
                found = True
                sink.feed(part)
        return found

    async def _follow(self) -> None:
        while True:
            if self._interpreter:
                self._drain()
            await asyncio.sleep(_FOLLOW_EVERY_S)

    async def _value(self, interpreter: Interpreter | None = None) -> Output | None:
        """Return short results. None for long ones, which are written to the file in the call's folder."""
        parts = [*self._crashed.parts, *([interpreter.results] if interpreter else [])]
        if sum(map(len, parts)) <= MAX_INLINE_BYTES:
            return _inline(b"".join(piece for part in parts for piece in pieces(part)))
        await asyncio.to_thread(write_file, Path(self._job.folder), parts)
        return None

    async def _complete(self, interpreter: Interpreter, reply: CallReply) -> Ended:
        """Take the results, and release the interpreter unless the call has left processes running."""
        try:
            value = await self._value(interpreter)
            if not (reply.strays or self._is_killed or self._is_terminated or self._job.gpus):
                return self._release(interpreter, reply, value)
        except OSError:
            interpreter.kill()
            raise
        interpreter.kill()
        await interpreter.ended()
        return self._ended(interpreter, reply, value)

    def _release(self, interpreter: Interpreter, reply: CallReply, value: Output | None) -> Ended:
        interpreter.clear()
        ended = self._ended(interpreter, reply, value)
        self._return(interpreter)
        return ended

    def _return(self, interpreter: Interpreter) -> None:
        """Let others have the interpreter, which may have been frozen just now."""
        interpreter.is_frozen = self._is_frozen
        if self._job.gpus:  # it may keep memory of a GPU
            interpreter.kill()
        else:
            self._pool.release(interpreter)

    def _ended(self, interpreter: Interpreter, reply: CallReply, value: Output | None) -> Ended:
        if value is None or self._crashed.parts:  # the file with the results is in the folder
            interpreter.leave_folder()
        return Ended(
            1 if self._crashed.crashes else reply.exit_code,
            cpu_s=reply.cpu_s,
            peak_memory_bytes=reply.peak_memory_bytes,
            strays=reply.strays,
            reason=self._crashed.remark or reply.reason,
            folder_is_left=not (self._job.makes_folder and interpreter.has_clean_folder),
            value=value,
        )

    def _end(self) -> None:
        self.has_ended = True
        if self._following:
            self._following.cancel()


def unavailable(error: DownloadError) -> Ended:
    """Return the end of a call whose files cannot be fetched."""
    return Ended(exit_code=1, refusal=str(error)) if error.is_gone else Ended(trouble=str(error))


def _inline(content: bytes) -> Output | None:
    return Output(len(content), data=content) if content else None


def _close_files(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _about_crash(ended: Ended, interpreter: Interpreter) -> str:
    """Return the reason of a crash; empty if another program killed the interpreter."""
    code = ended.exit_code or 0
    if code == -signal.SIGKILL:
        return ""
    how = f"exit code {code}"
    if code < 0:
        with suppress(ValueError):
            how = f"signal {-code}, {signal.Signals(-code).name}"
    if not interpreter.is_ready:
        return f"the Python process could not start ({how}): its stderr may say why"
    return f"the Python process exited during the call ({how})"
