"""A launcher that makes calls by warm interpreters, and leaves everything else to the one below it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from dataclasses import replace

from worker import scratch
from worker.downloads import DownloadError
from worker.launch.sinks import Target
from worker.launch.trees import Call, Job, Launcher, Tree
from worker.warm.call_tree import CallTree, EndedTree, Files, message_of, unavailable
from worker.warm.interpreter import PROGRAM
from worker.warm.interpreters import Interpreters

HANDS_FILES_OVER = sys.platform != "win32"
_SAME_EVERYWHERE = {"PYTHONHASHSEED": "0"}
"""A set is pickled in the order of its hashes: two workers' values are to be compared."""


class WarmLauncher:
    """``python``: what functions run under, the beginning of a command."""

    def __init__(self, launcher: Launcher, files: Files, python: tuple[str, ...] = (sys.executable,)) -> None:
        self._launcher = launcher
        self._files = files
        self._python = python
        self.interpreters = Interpreters(launcher)
        self.lines = launcher.lines

    async def start(self, job: Job, stdout: Target, stderr: Target) -> Tree:
        call = job.call
        if call is None:
            return await self._launcher.start(job, stdout, stderr)
        job = replace(job, command=self._python, environment={**_SAME_EVERYWHERE, **job.environment})
        if HANDS_FILES_OVER:
            assert not isinstance(stdout, int)
            assert not isinstance(stderr, int)
            return CallTree(job, call, self._files, self.interpreters, stdout, stderr)
        try:
            return await self._start_cold(job, call, stdout, stderr)
        except DownloadError as error:
            return EndedTree(unavailable(error))

    def cpu_s(self) -> float:
        return self._launcher.cpu_s()

    def close(self) -> None:
        self.interpreters.close()
        self._launcher.close()

    async def _start_cold(self, job: Job, call: Call, stdout: Target, stderr: Target) -> Tree:
        """An interpreter for this call alone, which finds it in a file."""
        if job.makes_folder:
            await asyncio.to_thread(scratch.make, job.folder)
        folder, files = scratch.temporary(job.folder), list[str]()
        for sha256 in call.files:
            async with self._files.hold(sha256) as path:
                files.append(shutil.copy(str(path), str(folder / sha256)))
        order = folder / "call.json"
        order.write_text(json.dumps({**message_of(job, call), "files": files}), "utf-8")
        command = [*self._python, str(PROGRAM), str(order)]
        return await self._launcher.start(replace(job, command=command, makes_folder=False), stdout, stderr)
