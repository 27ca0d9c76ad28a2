"""The calls of one task as a tree: from the files that they need to the answers of an interpreter."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loopline_shared.model import INLINE_LIMIT_BYTES, MAX_INLINE_BYTES, Output
from loopline_shared.paths import TEMPORARY
from loopline_worker.files.downloads import DownloadError
from loopline_worker.functions.append_files import file_of
from loopline_worker.functions.channel import Line
from loopline_worker.functions.interpreter import Answer, Interpreter
from loopline_worker.functions.pool import Interpreters
from loopline_worker.functions.results import Made, pieces, write_file
from loopline_worker.functions.return_value import NAME
from loopline_worker.launch.interface import Call, Ended, Job, Patron, Usage
from loopline_worker.launch.sinks import Sink

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId

_LONGEST_IN_LINE = 32_000
"""Arguments up to this stand in the line to the interpreter; a socket takes only so much at once."""
_MOST_CRASHES = 100
"""Of one task's calls; those after them are not made."""
_FOLLOW_EVERY_S = 0.05
_PARTS_AT_ONCE = 64
_KILLED = "killed by another program, or by the system for lack of memory"


class Files(Protocol):
    def hold(self, sha256: str) -> AbstractAsyncContextManager[Path]:
        """The file, on this computer; DownloadError, OSError."""


def message_of(job: Job, call: Call) -> dict[str, Any]:
    """What an interpreter is told of one task that brings nothing with it."""
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
        self._key = (call.session, job.room, job.limits, job.network)  # equal for calls that may share an interpreter
        self._interpreter: Interpreter | None = None
        self._asked: Interpreter | None = None  # at once, and what it said does not say it all:
        self._heard: Answer | Ended | None = None
        self._tell_ended: Callable[[Ended], None]
        self._tell_waits: Callable[[], None]
        self._made = Made()
        self._is_frozen = False
        self._is_killed = False
        self._has_ended = False
        self._fetching: asyncio.Task[list[int]] | None = None
        self._following: asyncio.Task[None] | None = None

    def begin(self, patron: Patron, name: AttemptId) -> None:
        """At once, where an interpreter waits that has all it needs; else the patron has to wait. OSError."""
        self._tell_ended, self._tell_waits = partial(patron.ended, name), partial(patron.waits, name)
        interpreter = self._interpreters.find(self._key)
        if not interpreter or not self._is_all_there(interpreter):
            self._tell_waits()
            return
        self._interpreters.take(interpreter)
        try:
            self._prepare(interpreter)
        except OSError:
            self._interpreters.give_back(interpreter)
            raise
        self._use(interpreter)
        interpreter.ask(message_of(self._job, self._call))
        interpreter.listen(self._hear)

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
            self._end()

    async def _make(self) -> Ended:
        """Its calls. Where one of several makes its interpreter crash, those after it are made by another."""
        try:
            while True:
                interpreter = self._asked or await self._take()
                try:
                    if ended := await self._make_by(interpreter):
                        return ended
                finally:
                    self._asked = None
                    interpreter.release()
        finally:
            self._made.close()

    async def _make_by(self, interpreter: Interpreter) -> Ended | None:
        """None: it crashed, and there are calls left."""
        answer = await interpreter.conclude(self._heard) if self._asked else await self._ask(interpreter)
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
        if interpreter := self._interpreters.find(self._key):
            self._interpreters.take(interpreter)
        else:
            interpreter = await self._interpreters.start(self._key, self._job)
        self._use(interpreter)
        return interpreter

    def _use(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        interpreter.hold()

    async def _ask(self, interpreter: Interpreter) -> Answer | Ended:
        message, files = message_of(self._job, self._call), list[int]()
        try:
            files = await self._fetch(interpreter, message)
            self._prepare(interpreter)
        except BaseException:
            close_files(files)
            self._interpreters.give_back(interpreter)
            raise
        try:
            return await interpreter.call(message, files)
        finally:
            close_files(files)

    def _prepare(self, interpreter: Interpreter) -> None:
        """OSError: no room for its folder."""
        if self._job.makes_folder:
            interpreter.make_folder(self._job.folder)
        if self._is_killed:
            interpreter.kill()
        elif self._is_frozen:
            interpreter.tree.freeze()

    async def _fetch(self, interpreter: Interpreter, message: dict[str, Any]) -> list[int]:
        """What the interpreter does not have, on this computer and open; the message says what that is."""
        message["skip"] = self._made.calls
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
            files.append(file_of(base64.b64decode(message.pop("arguments")), interpreter.folder))
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

    def _is_all_there(self, interpreter: Interpreter) -> bool:
        is_short = len(self._call.arguments) <= _LONGEST_IN_LINE and not self._call.arguments_file
        return is_short and interpreter.is_ready and self._call.function in interpreter.functions

    # What they wrote, and what they came to.

    def _hear(self, line: Line) -> None:
        """The answer to what was asked at once: mostly there is nothing to wait for."""
        interpreter = self._interpreter
        assert interpreter
        self._heard = interpreter.heed(line)
        try:
            ended = self._settle_at_once(interpreter, self._heard)
        except OSError:  # as whoever waits finds again, and tells
            ended = None
        if ended:
            interpreter.release()
            self._end()
            self._tell_ended(ended)
        else:
            self._asked = interpreter
            self._tell_waits()

    def _settle_at_once(self, interpreter: Interpreter, answer: Answer | Ended | None) -> Ended | None:
        """None: it takes a while."""
        if not isinstance(answer, Answer) or answer.strays or (self._drain() and self._drain()) or self._is_killed:
            return None
        content = interpreter.ends.whole(MAX_INLINE_BYTES)
        return None if content is None else self._give_back(interpreter, answer, _inline(content))

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
            return _inline(b"".join(piece for part in made for piece in pieces(part)))
        await asyncio.to_thread(write_file, Path(self._job.folder), made)
        return None

    async def _settle(self, interpreter: Interpreter, answer: Answer) -> Ended:
        """The interpreter waits for the next call, unless this one has left something running."""
        try:
            value = await self._value(interpreter)
            if not answer.strays and not self._is_killed:
                return self._give_back(interpreter, answer, value)
        except OSError:
            interpreter.kill()
            raise
        interpreter.kill()
        await interpreter.ended()
        return self._ended(interpreter, answer, value)

    def _give_back(self, interpreter: Interpreter, answer: Answer, value: Output | None) -> Ended:
        interpreter.clear()
        interpreter.is_frozen = self._is_frozen  # it may have answered just before
        ended = self._ended(interpreter, answer, value)
        self._interpreters.give_back(interpreter)
        return ended

    def _ended(self, interpreter: Interpreter, answer: Answer, value: Output | None) -> Ended:
        if value is None or self._made.parts:  # where it is looked for yet
            interpreter.leave_folder()
        return Ended(
            1 if self._made.crashes else answer.exit_code,
            cpu_s=answer.cpu_s,
            peak_memory_bytes=answer.peak_memory_bytes,
            strays=answer.strays,
            reason=self._made.remark or answer.reason,
            folder_is_left=not (self._job.makes_folder and interpreter.has_clean_folder),
            value=value,
        )

    def _end(self) -> None:
        self._has_ended = True
        if self._following:
            self._following.cancel()


def unavailable(error: DownloadError) -> Ended:
    """What a call comes to whose files cannot be had."""
    return Ended(exit_code=1, refusal=str(error)) if error.is_gone else Ended(trouble=str(error))


def _inline(content: bytes) -> Output | None:
    return Output(len(content), data=content) if content else None


def close_files(files: list[int]) -> None:
    for file in files:
        os.close(file)


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
