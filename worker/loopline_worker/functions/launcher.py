"""The launcher that runs calls in interpreters of its pool, and passes all other tasks to the launcher below it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_worker.attempts import scratch
from loopline_worker.files.downloads import DownloadError
from loopline_worker.functions.function_call import FileStore, FunctionCall, message_of, unavailable
from loopline_worker.functions.interpreter import PROGRAM
from loopline_worker.functions.pool import InterpreterPool
from loopline_worker.launch.interface import Call, Ended, Job, Launcher, Tree, Usage
from loopline_worker.launch.sinks import Target

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId

PASSES_FILES = sys.platform != "win32"
"""True if open files can be passed over a socket."""


class FunctionLauncher:
    """A launcher for commands and calls. ``python``: the beginning of their command."""

    def __init__(self, launcher: Launcher, files: FileStore, python: tuple[str, ...] = (sys.executable,)) -> None:
        self._launcher = launcher
        self._files = files
        self.interpreters = InterpreterPool(launcher, python)
        self.prefetching, self.cpu_s = launcher.prefetching, launcher.cpu_s  # which know commands alone

    async def start(self, job: Job, stdout: Target, stderr: Target, name: AttemptId | None = None) -> Tree:
        """Start a command; a call starts with ``wait``."""
        call = job.call
        if call is None:
            return await self._launcher.start(job, stdout, stderr, name)
        if PASSES_FILES and not job.pipes_output:
            assert not isinstance(stdout, int)
            assert not isinstance(stderr, int)
            return FunctionCall(job, call, self._files, self.interpreters, (stdout, stderr))
        try:
            return await self._start_cold(job, call, stdout, stderr)
        except DownloadError as error:
            return EndedTree(unavailable(error))

    def prepare(self) -> None:
        """Have the launcher below ready for the first task."""
        self._launcher.prepare()

    def close(self) -> None:
        """Kill the interpreters, and close the launcher below."""
        self.interpreters.close()
        self._launcher.close()

    async def _start_cold(self, job: Job, call: Call, stdout: Target, stderr: Target) -> Tree:
        """Start an interpreter for this task alone, which reads its calls from a file."""
        if job.makes_folder:
            await asyncio.to_thread(scratch.make, Path(job.folder))
        folder, files = scratch.temporary(Path(job.folder)), list[str]()
        for sha256 in call.files:
            async with self._files.hold(sha256) as path:
                files.append(shutil.copy(str(path), str(folder / sha256)))
        program = shutil.copy(str(PROGRAM), str(folder / PROGRAM.name))  # where a sandbox shows it
        order = folder / "call.json"
        order.write_text(json.dumps({**message_of(job, call), "files": files}), "utf-8")
        own = replace(self.interpreters.under_python(job, program, str(order)), makes_folder=False)
        return await self._launcher.start(own, stdout, stderr)


class EndedTree:
    """A tree that has ended without ever having started."""

    has_ended = True

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    def kill(self) -> None:
        """Do nothing."""

    def terminate(self) -> None:
        """Do nothing."""

    def freeze(self) -> None:
        """Do nothing."""

    def thaw(self) -> None:
        """Do nothing."""

    def extend(self, ends_at: float) -> None:
        """Do nothing."""

    def follow(self) -> None:
        """Do nothing."""

    def lend(self, folder: str) -> None:
        """Do nothing."""

    def is_still(self) -> bool:
        """True, for nothing runs."""
        return True

    def measure(self) -> Usage:
        """Return zeros."""
        return Usage()

    def count(self) -> int:
        """Return zero."""
        return 0

    async def wait(self) -> Ended:
        """Return the end."""
        return self._ended
