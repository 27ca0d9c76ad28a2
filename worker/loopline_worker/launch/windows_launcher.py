"""Launching on Windows: each attempt has its own Job Object, which ends with its whole tree. UNTESTED.

The process is created suspended and put into its Job Object before its first instruction, so that all it ever starts
belongs to it. The agent holds the only handle: when the agent is killed, every job is killed too.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from loopline_worker.attempts import scratch
from loopline_worker.launch import job_object
from loopline_worker.launch.interface import Ended, Job, Limits, Usage
from loopline_worker.launch.job_object import JobObject
from loopline_worker.launch.portable_family import usage_of
from loopline_worker.launch.sinks import Target, opened

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId

_LOOK_AGAIN_S = 0.1
FLAGS = 0x08000000 | 0x00000200 | 0x00000004  # CREATE_NO_WINDOW, CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED
IDLE = 0x00000040  # IDLE_PRIORITY_CLASS
VERY_LOW_DISK_PRIORITY = 0  # IOPRIO_VERYLOW


class WindowsLauncher:
    """Starts each task as a process of its own; nothing can be prefetched."""

    prefetching = None

    def __init__(self, yields: bool) -> None:
        self._yields = yields

    async def start(self, job: Job, stdout: Target, stderr: Target, name: AttemptId | None = None) -> WindowsTree:
        """Start a task and return its tree, which the caller awaits."""
        if job.makes_folder:
            await asyncio.to_thread(scratch.make, Path(job.folder))
        async with opened(stdout, stderr) as outputs:
            return self._start(job, *outputs)

    def _start(self, job: Job, stdout: int, stderr: int) -> WindowsTree:
        flags = FLAGS | (IDLE if self._yields else 0)
        try:
            process = subprocess.Popen(
                list(job.command), cwd=job.folder, env=job.environment,
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, creationflags=flags,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError, ValueError) as error:
            return WindowsTree(None, None, str(error))
        try:
            return WindowsTree(process, self._contain(process, job.limits))
        except OSError:
            process.kill()  # it has not run yet
            raise

    def cpu_s(self) -> float:
        """Return zero: there are no processes beside the tasks."""
        return 0.0

    def prepare(self) -> None:
        """Do nothing: tasks are started by the agent itself."""

    def close(self) -> None:
        """Do nothing: each job dies with the agent."""

    def _contain(self, process: subprocess.Popen[bytes], limits: Limits) -> JobObject:
        """Put the process into a Job Object, then resume it."""
        group = JobObject()
        allowed = job_object.limits(self._yields, limits.memory_bytes, limits.processes)
        group.set(allowed, job_object.EXTENDED_LIMIT)
        if limits.cores and self._yields:
            with suppress(OSError):  # servers may share processor time out in another way
                group.set(job_object.cpu_rate(limits.cores, os.cpu_count() or 1), job_object.CPU_RATE)
        group.assign(int(process._handle))  # type: ignore[attr-defined]
        itself = psutil.Process(process.pid)
        if self._yields:
            with suppress(psutil.Error, OSError):
                itself.ionice(VERY_LOW_DISK_PRIORITY)
        itself.resume()
        return group


class WindowsTree:
    """Task in a Job Object. If ``process`` is None, it could not be run for the reason in ``refusal``."""

    def __init__(self, process: subprocess.Popen[bytes] | None, group: JobObject | None, refusal: str = "") -> None:
        self._process = process
        self._group = group
        self._ended = Ended(exit_code=127, refusal=refusal)
        self._suspended: dict[int, float] = {}  # which, and since when they run: each suspension is counted

    @property
    def has_ended(self) -> bool:
        """True if its first process has ended, or never ran."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Kill the whole job."""
        if self._process and self._group and self._process.poll() is None:
            self._ended = replace(self._ended, killed=True)
            self._group.kill()

    def terminate(self) -> None:
        """Kill the whole job: a program without a window cannot be asked."""
        self.kill()

    def freeze(self) -> None:
        """Suspend each process that is not suspended yet: Windows counts suspensions."""
        for process in self._tree():
            with suppress(psutil.Error):
                if self._suspended.get(process.pid) != process.create_time():
                    process.suspend()
                    self._suspended[process.pid] = process.create_time()

    def thaw(self) -> None:
        """Resume what was suspended."""
        for process in self._tree():
            with suppress(psutil.Error):
                if self._suspended.get(process.pid) == process.create_time():
                    process.resume()
        self._suspended.clear()

    def extend(self, ends_at: float) -> None:
        """Do nothing."""

    def follow(self) -> None:
        """Do nothing: output goes to files."""

    def lend(self, folder: str) -> None:
        """Do nothing: its processes are the agent's user's."""

    def is_still(self) -> bool:
        """True: suspended processes stop at once."""
        return True

    def count(self) -> int:
        """Return the number of its processes."""
        return len(self._tree())

    def measure(self) -> Usage:
        """Return what it has used until now."""
        if self._process is None or self._group is None:
            return Usage()
        with suppress(OSError):
            accounting = self._group.accounting()
            cpu_s, usage = job_object.cpu_s(accounting), usage_of(self._process.pid)
            system_s = max(self._ended.system_s, job_object.system_s(accounting))
            self._ended = replace(self._ended, cpu_s=max(self._ended.cpu_s, cpu_s), system_s=system_s)
            return replace(usage, cpu_s=cpu_s, processes=int(accounting.active_processes))
        return Usage()

    async def wait(self) -> Ended:
        """Wait until the process has ended; the rest of the job is killed then."""
        if self._process is None or self._group is None:
            return self._ended
        while (exit_code := self._process.poll()) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)
        self.measure()
        with suppress(OSError):
            self._ended = replace(self._ended, peak_memory_bytes=self._group.peak_memory_bytes())
        self._group.close()
        return replace(self._ended, exit_code=exit_code)

    def _tree(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        with suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []
