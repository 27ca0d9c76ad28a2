"""A launcher that makes calls by warm interpreters, and leaves everything else to the one below it."""

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
from loopline_worker.functions.function_call import CallTree, Files, message_of, unavailable
from loopline_worker.functions.interpreter import PROGRAM
from loopline_worker.functions.pool import Interpreters
from loopline_worker.launch.interface import Call, Ended, Job, Launcher, Lines, Patron, Tree, Usage
from loopline_worker.launch.sinks import Sink, Target

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId

HANDS_FILES_OVER = sys.platform != "win32"


class WarmLauncher:
    """``python``: what functions run under, the beginning of a command."""

    def __init__(self, launcher: Launcher, files: Files, python: tuple[str, ...] = (sys.executable,)) -> None:
        self._launcher = launcher
        self._files = files
        self.interpreters = Interpreters(launcher, python)
        self.lines = WarmLines(launcher.lines, self) if launcher.lines else None

    async def start(self, job: Job, stdout: Target, stderr: Target) -> Tree:
        call = job.call
        if call is None:
            return await self._launcher.start(job, stdout, stderr)
        if HANDS_FILES_OVER:
            assert not isinstance(stdout, int)
            assert not isinstance(stderr, int)
            return self.call_tree(job, call, stdout, stderr)
        try:
            return await self._start_cold(job, call, stdout, stderr)
        except DownloadError as error:
            return EndedTree(unavailable(error))

    def call_tree(self, job: Job, call: Call, stdout: Sink, stderr: Sink) -> CallTree:
        return CallTree(job, call, self._files, self.interpreters, stdout, stderr)

    def cpu_s(self) -> float:
        return self._launcher.cpu_s()

    def close(self) -> None:
        self.interpreters.close()
        self._launcher.close()

    async def _start_cold(self, job: Job, call: Call, stdout: Target, stderr: Target) -> Tree:
        """An interpreter for this call alone, which finds it in a file."""
        if job.makes_folder:
            await asyncio.to_thread(scratch.make, Path(job.folder))
        folder, files = scratch.temporary(Path(job.folder)), list[str]()
        for sha256 in call.files:
            async with self._files.hold(sha256) as path:
                files.append(shutil.copy(str(path), str(folder / sha256)))
        order = folder / "call.json"
        order.write_text(json.dumps({**message_of(job, call), "files": files}), "utf-8")
        own = replace(self.interpreters.under_python(job, str(PROGRAM), str(order)), makes_folder=False)
        return await self._launcher.start(own, stdout, stderr)


class WarmLines:
    """Those of the launcher below, and calls, which begin at once where an interpreter waits for them."""

    def __init__(self, lines: Lines, launcher: WarmLauncher) -> None:
        self._lines = lines
        self._launcher = launcher
        self.line_up, self.room, self.recall = lines.line_up, lines.room, lines.recall

    def takes(self, job: Job) -> bool:
        return job.makes_folder and HANDS_FILES_OVER if job.call else self._lines.takes(job)

    def begin(self, patron: Patron, name: AttemptId, job: Job, stdout: Sink, stderr: Sink) -> Tree:
        if job.call is None:
            return self._lines.begin(patron, name, job, stdout, stderr)
        tree = self._launcher.call_tree(job, job.call, stdout, stderr)
        tree.begin(patron, name)
        return tree


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
