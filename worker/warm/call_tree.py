"""One call as a tree: from the files that it needs to the answer of an interpreter."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from worker.downloads import DownloadError
from worker.launch.trees import Call, Ended, Job, Usage
from worker.warm.interpreter import Answer, Interpreter
from worker.warm.interpreters import Interpreters


class Files(Protocol):
    def hold(self, sha256: str) -> AbstractAsyncContextManager[Path]:
        """The file, on this computer; DownloadError, OSError."""


def message_of(job: Job, call: Call) -> dict[str, Any]:
    """What an interpreter is told of one call."""
    return {
        "function": call.function,
        "arguments": call.arguments,
        "folder": str(job.folder),
        "environment": {name: value for name, value in job.environment.items() if _is_of_call(name)},
        "value": str(call.value),
    }


def session_key(job: Job, session: str) -> str:
    """Equal for calls that may share an interpreter: of one session, with the same limits and environment."""
    environment = sorted(pair for pair in job.environment.items() if not _is_of_call(pair[0]))
    what = (session, environment, str(job.limits), job.network, str(job.room))
    return hashlib.sha256(repr(what).encode()).hexdigest()


def _is_of_call(variable: str) -> bool:
    return variable in ("HOME", "TMPDIR", "TEMP", "TMP") or variable.startswith("LOOPLINE_")


class CallTree:
    """Its CPU time and memory are those of its interpreter since the call began."""

    def __init__(
        self,
        job: Job,
        call: Call,
        store: Files,
        interpreters: Interpreters,
        stdout: int,
        stderr: int,
    ) -> None:
        self._job = job
        self._call = call
        self._store = store
        self._interpreters = interpreters
        self._outputs = [stdout, stderr]
        self._interpreter: Interpreter | None = None
        self._is_frozen = False
        self._is_killed = False
        self._has_ended = False
        self._fetching: asyncio.Task[list[int]] | None = None

    def kill(self) -> None:
        self._is_killed = True
        if self._interpreter and not self._has_ended:
            self._interpreter.kill()
        elif self._fetching:
            self._fetching.cancel()

    def freeze(self) -> None:
        self._is_frozen = True
        if self._interpreter and not self._has_ended:
            self._interpreter.tree.freeze()

    def thaw(self) -> None:
        self._is_frozen = False
        if self._interpreter and not self._has_ended:
            self._interpreter.tree.thaw()

    def follow(self) -> None: ...

    def is_still(self) -> bool:
        return self._interpreter is None or self._has_ended or self._interpreter.tree.is_still()

    def measure(self) -> Usage:
        if self._interpreter is None or self._has_ended:
            return Usage()
        usage = self._interpreter.tree.measure()
        return replace(usage, cpu_s=max(0.0, usage.cpu_s - self._interpreter.used_cpu_s))

    def count(self) -> int:
        return self._interpreter.tree.count() if self._interpreter else 0

    async def wait(self) -> Ended:
        files: list[int] = []
        try:
            files = await self._fetch()
            answer = await self._make(files)
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
            close_files([*self._outputs, *files])
        return answer if isinstance(answer, Ended) else await self._settle(answer)

    async def _fetch(self) -> list[int]:
        """What the call needs, on this computer and open."""
        self._fetching = asyncio.create_task(self._open_files())
        if self._is_killed:
            self._fetching.cancel()
        return await self._fetching

    async def _open_files(self) -> list[int]:
        opened: list[int] = []
        try:
            for sha256 in self._call.files:
                async with self._store.hold(sha256) as path:
                    opened.append(os.open(path, os.O_RDONLY))  # once open, it may go from the cache
        except BaseException:
            close_files(opened)
            raise
        return opened

    async def _make(self, files: list[int]) -> Answer | Ended:
        key = session_key(self._job, self._call.session)
        interpreter = self._interpreter = await self._interpreters.take(key, self._job, self._outputs[1])
        if self._is_killed:
            interpreter.kill()
        elif self._is_frozen:
            interpreter.tree.freeze()
        answer = await interpreter.call(message_of(self._job, self._call), [*self._outputs, *files])
        if isinstance(answer, Answer) or answer.killed or answer.breach or answer.trouble:
            return answer
        reason = answer.reason or _about_crash(answer, interpreter)
        return replace(answer, exit_code=answer.exit_code or 1, reason=reason)

    async def _settle(self, answer: Answer) -> Ended:
        """The interpreter waits for the next call, unless this one has left something running."""
        assert self._interpreter
        if answer.strays or self._is_killed:
            self._interpreter.kill()
            await self._interpreter.ended()
        else:
            self._interpreter.is_frozen = self._is_frozen  # it may have answered just before
            self._interpreters.give_back(self._interpreter)
        return Ended(
            answer.exit_code,
            cpu_s=answer.cpu_s,
            peak_memory_bytes=answer.peak_memory_bytes,
            strays=answer.strays,
            reason=answer.reason,
        )


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
