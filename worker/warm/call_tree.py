"""The calls of one task as a tree: from the files that they need to the answers of an interpreter."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import signal
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from shared.chunks import CRASHED, END
from shared.model import INLINE_LIMIT_BYTES, MAX_INLINE_BYTES, Output
from shared.paths import TEMPORARY
from worker import inside
from worker.downloads import DownloadError
from worker.launch.sinks import Sink
from worker.launch.trees import Call, Ended, Job, Usage
from worker.warm.interpreter import Answer, Interpreter, printable
from worker.warm.interpreters import Interpreters
from worker.warm.value import NAME
from worker.warm.written import Written

_LONGEST_IN_LINE = 32_000
"""Arguments up to this stand in the line to the interpreter; a socket takes only so much at once."""
_MOST_CRASHES = 100
"""Of one task's calls; those after them are not made."""
_FOLLOW_EVERY_S = 0.05
_PARTS_AT_ONCE = 64
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_KILLED = "killed by another program, or by the system for lack of memory"


class Files(Protocol):
    def hold(self, sha256: str) -> AbstractAsyncContextManager[Path]:
        """The file, on this computer; DownloadError, OSError."""


def message_of(job: Job, call: Call) -> dict[str, Any]:
    """What an interpreter is told of one task."""
    return {
        "function": call.function,
        "arguments": call.arguments,
        "folder": str(job.folder),
        "environment": {name: value for name, value in job.environment.items() if _is_of_call(name)},
        "value": str(call.value),
        "chunk": call.count is not None,
        "skip": 0,
    }


def session_key(job: Job, session: str) -> Hashable:
    """Equal for calls that may share an interpreter: of one session, with the same limits and environment."""
    environment = frozenset(pair for pair in job.environment.items() if not _is_of_call(pair[0]))
    return session, environment, job.limits, job.network, job.room


def _is_of_call(variable: str) -> bool:
    return variable in ("HOME", "TMPDIR", "TEMP", "TMP") or variable.startswith("LOOPLINE_")


class CallTree:
    """Its CPU time and memory are those of its interpreter since the call began."""

    def __init__(
        self, job: Job, call: Call, store: Files, interpreters: Interpreters, stdout: Sink, stderr: Sink
    ) -> None:
        self._job = job
        self._call = call
        self._store = store
        self._interpreters = interpreters
        self._sinks = (stdout, stderr)
        self._interpreter: Interpreter | None = None
        self._made = Made()
        self._is_frozen = False
        self._is_killed = False
        self._has_ended = False
        self._fetching: asyncio.Task[list[int]] | None = None
        self._following: asyncio.Task[None] | None = None

    def kill(self) -> None:
        self._is_killed = True
        if self._fetching:
            self._fetching.cancel()
        elif self._interpreter and not self._has_ended:
            self._interpreter.kill()

    def freeze(self) -> None:
        self._is_frozen = True
        if self._interpreter and not self._has_ended:
            self._interpreter.tree.freeze()

    def thaw(self) -> None:
        self._is_frozen = False
        if self._interpreter and not self._has_ended:
            self._interpreter.tree.thaw()

    def is_still(self) -> bool:
        return self._interpreter is None or self._has_ended or self._interpreter.tree.is_still()

    def measure(self) -> Usage:
        if self._interpreter is None or self._has_ended:
            return Usage()
        self._drain()
        usage = self._interpreter.tree.measure()
        return replace(usage, cpu_s=max(0.0, usage.cpu_s - self._interpreter.used_cpu_s))

    def follow(self) -> None:
        if self._following is None and not self._has_ended:
            self._following = asyncio.create_task(self._follow())

    def count(self) -> int:
        return self._interpreter.tree.count() if self._interpreter else 0

    async def wait(self) -> Ended:
        try:
            return await self._make()
        except asyncio.CancelledError:
            if not self._is_killed:
                raise
            return Ended(killed=True)
        except DownloadError as error:
            return unavailable(error)
        except OSError as error:
            return Ended(trouble=f"cannot call a function here: {error}")
        finally:
            self._has_ended = True
            if self._following:
                self._following.cancel()

    async def _make(self) -> Ended:
        """Its calls. Where one of several makes its interpreter crash, those after it are made by another."""
        try:
            while True:
                interpreter = await self._take()
                try:
                    if ended := await self._make_by(interpreter):
                        return ended
                finally:
                    interpreter.release()
        finally:
            self._made.close()

    async def _make_by(self, interpreter: Interpreter) -> Ended | None:
        """None: it crashed, and there are calls left."""
        answer = await self._ask(interpreter)
        while self._drain():  # noqa: ASYNC110 - it is more that is drained
            await asyncio.sleep(0)  # others' turn
        if isinstance(answer, Answer):
            return await self._settle(interpreter, answer)
        if answer.killed or answer.breach or answer.trouble or answer.refusal:
            return replace(answer, value=await self._value(interpreter))
        how = answer.reason or _about_crash(answer, interpreter)
        if self._call.count is None or not interpreter.is_ready:
            return replace(answer, exit_code=answer.exit_code or 1, reason=how)
        self._made.crashed(interpreter, how or _KILLED)
        if self._made.calls < self._call.count and self._made.crashes < _MOST_CRASHES:
            return None
        return replace(answer, exit_code=1, reason=self._made.remark, value=await self._value())

    async def _take(self) -> Interpreter:
        key = session_key(self._job, self._call.session)
        interpreter = self._interpreter = await self._interpreters.take(key, self._job)
        interpreter.hold()
        return interpreter

    async def _ask(self, interpreter: Interpreter) -> Answer | Ended:
        message, files = message_of(self._job, self._call), list[int]()
        try:
            files = await self._fetch(interpreter, message)
            if self._job.makes_folder:
                interpreter.make_folder(self._job.folder)
        except BaseException:
            close_files(files)
            self._interpreters.give_back(interpreter)
            raise
        try:
            if self._is_killed:
                interpreter.kill()
            elif self._is_frozen:
                interpreter.tree.freeze()
            return await interpreter.call(message, files)
        finally:
            close_files(files)

    async def _fetch(self, interpreter: Interpreter, message: dict[str, Any]) -> list[int]:
        """What the interpreter does not have, on this computer and open; the message says what that is."""
        message["inline"], message["skip"] = INLINE_LIMIT_BYTES, self._made.calls
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
        if len(message["arguments"]) > _LONGEST_IN_LINE:
            message["brings"].append("arguments")
            files.append(_file_of(base64.b64decode(message.pop("arguments")), interpreter.folder))
        return files

    async def _open_files(self, names: list[str]) -> list[int]:
        opened: list[int] = []
        try:
            for sha256 in names:
                async with self._store.hold(sha256) as path:
                    opened.append(os.open(path, os.O_RDONLY))  # once open, it may go from the cache
        except BaseException:
            close_files(opened)
            raise
        return opened

    # What they wrote, and what they came to.

    def _drain(self) -> bool:
        """What was written to stdout and stderr by now, some at a time; whether there was any."""
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
        """In itself, where it is short. Else (None) in its file, where whoever ends the attempt finds it."""
        made = [*self._made.parts, *([interpreter.ends] if interpreter else [])]
        if sum(map(len, made)) <= MAX_INLINE_BYTES:
            content = b"".join(piece for part in made for piece in pieces(part))
            return Output(len(content), data=content) if content else None
        await asyncio.to_thread(_write_file, self._job.folder, made)
        return None

    async def _settle(self, interpreter: Interpreter, answer: Answer) -> Ended:
        """The interpreter waits for the next call, unless this one has left something running."""
        value = await self._value(interpreter)
        is_clean = self._job.makes_folder and interpreter.has_clean_folder and not self._made.parts
        if answer.strays or self._is_killed:
            interpreter.kill()
            await interpreter.ended()
        else:
            interpreter.clear()
            interpreter.is_frozen = self._is_frozen  # it may have answered just before
            self._interpreters.give_back(interpreter)
        return Ended(
            1 if self._made.crashes else answer.exit_code,
            cpu_s=answer.cpu_s,
            peak_memory_bytes=answer.peak_memory_bytes,
            strays=answer.strays,
            reason=self._made.remark or answer.reason,
            folder_is_left=not is_clean,
            value=value,
        )


class Made:
    """What came of calls whose interpreter crashed, one or another: ends, in order."""

    def __init__(self) -> None:
        self.parts: list[Written | bytes] = []
        self.calls = 0
        self.crashes = 0
        self._first = ""

    @property
    def remark(self) -> str:
        """Of all crashes; empty: there was none."""
        return f"{self.crashes} of its calls crashed; the first: {self._first}" if self.crashes else ""

    def crashed(self, interpreter: Interpreter, how: str) -> None:
        """It ended in the middle of the call after those that it has written down."""
        written = interpreter.take_ends()
        self.parts.append(written)
        self.calls += written.keep_whole_ends() + 1
        text = printable(how).encode()
        self.parts.append(END.pack(CRASHED, 0.0, len(text)) + text)
        self.crashes += 1
        self._first = self._first or how

    def close(self) -> None:
        for part in self.parts:
            if isinstance(part, Written):
                part.close()


class EndedTree:
    """One that never began."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def follow(self) -> None: ...

    def is_still(self) -> bool:
        return True

    def measure(self) -> Usage:
        return Usage()

    def count(self) -> int:
        return 0

    async def wait(self) -> Ended:
        return self._ended


def unavailable(error: DownloadError) -> Ended:
    """What a call comes to whose files cannot be had."""
    return Ended(exit_code=1, refusal=str(error)) if error.is_gone else Ended(trouble=str(error))


def close_files(files: list[int]) -> None:
    for file in files:
        os.close(file)


def pieces(part: Written | bytes) -> Iterable[bytes]:
    return [part] if isinstance(part, bytes) else part.parts()


def _write_file(folder: Path, parts: Sequence[Written | bytes]) -> None:
    """Where ``value.take`` looks, in a folder that calls may have changed as they like: no link is followed, and
    what cannot be written there for that reason is lost, by their own doing. OSError: no room.
    """
    try:
        with inside.folder(folder, (TEMPORARY,), make=True) as handle:
            name = inside.at(folder, (TEMPORARY, NAME), handle)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
            file = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600, dir_fd=handle
            )
        with os.fdopen(file, "wb") as stream:
            for part in parts:
                stream.writelines(pieces(part))
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise


def _file_of(content: bytes, folder: Path) -> int:
    """An open file without a name."""
    written = Written(folder)
    try:
        with os.fdopen(written.file, "wb", closefd=False) as stream:  # all of it, or OSError: the disk may be full
            stream.write(content)
    except OSError:
        written.close()
        raise
    return written.file


def _about_crash(ended: Ended, interpreter: Interpreter) -> str:
    code = ended.exit_code or 0
    if code == -signal.SIGKILL:
        return ""  # not of itself
    how = f"exit code {code}"
    if code < 0:
        with suppress(ValueError):
            how = f"signal {-code} ({signal.Signals(-code).name})"
    if not interpreter.is_ready:
        return f"its Python could not start: {how}; its stderr may say why"
    return f"its interpreter ended in the middle of the call: {how}"
