"""Launching on Windows: plain subprocesses at idle priority, their trees killed by psutil. UNTESTED.

What a Job Object would add is not here yet: a grandchild whose parent has ended is not found, and tasks survive an
agent that is killed, until the next agent's sweep.
"""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from dataclasses import replace

import psutil

from worker.launch.trees import Ended, Job, Usage, usage_of

_LOOK_AGAIN_S = 0.1
_FLAGS = 0x08000000 | 0x00000200  # CREATE_NO_WINDOW, CREATE_NEW_PROCESS_GROUP
_IDLE = 0x00000040  # IDLE_PRIORITY_CLASS


class WindowsLauncher:
    def __init__(self, yields: bool) -> None:
        self._flags = _FLAGS | (_IDLE if yields else 0)

    async def start(self, job: Job, stdout: int, stderr: int) -> WindowsTree:
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - takes milliseconds, and asyncio's keeps the pipes
                list(job.command), cwd=job.folder, env=job.environment,
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, creationflags=self._flags,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError, ValueError) as error:
            return WindowsTree(None, str(error))
        return WindowsTree(process)

    def cpu_s(self) -> float:
        return 0.0

    def close(self) -> None: ...


class WindowsTree:
    """A task whose ``process`` is None could not be run, for the reason in ``refusal``."""

    def __init__(self, process: subprocess.Popen[bytes] | None, refusal: str = "") -> None:
        self._process = process
        self._ended = Ended(exit_code=127, refusal=refusal)

    def kill(self) -> None:
        if self._process and self._process.poll() is None:
            self._ended = replace(self._ended, killed=True)
            _kill_tree(self._process.pid)

    def measure(self) -> Usage:
        if self._process is None:
            return Usage()
        usage = usage_of(self._process.pid)
        self._ended = replace(self._ended, cpu_s=max(self._ended.cpu_s, usage.cpu_s))
        return usage

    async def wait(self) -> Ended:
        if self._process is None:
            return self._ended
        while (exit_code := self._process.poll()) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)
        return replace(self._ended, exit_code=exit_code)


def _kill_tree(pid: int) -> None:
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            with suppress(psutil.Error):
                process.kill()
