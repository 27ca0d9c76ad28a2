"""One attempt from its Run to its Result: a process tree in a scratch folder, its output captured."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from shared.model import Held, Outcome, Result
from shared.protocol.messages import Run
from worker import scratch
from worker.capture import Capture
from worker.launch.trees import Ended, Job, Launcher, Tree, Usage

_WHOLE = (Outcome.SUCCEEDED, Outcome.FAILED)
"""Whose output somebody wants to read; of the others only the beginning is kept."""


_KILLED_BY_OTHERS = "killed by another program, or by the system for lack of memory"


class Attempt:
    """Ends in exactly one Result, whatever happens."""

    def __init__(self, run: Run, job: Job, launcher: Launcher, files: tuple[Path, Path], limit_bytes: int) -> None:
        """``files``: where stdout and stderr go when they are long, each up to ``limit_bytes``."""
        self.id = run.attempt
        self.trouble = ""  # what this computer could not do
        self.usage = Usage()  # when last measured
        self.spent_cpu_s = 0.0  # all that it cost here, known at its end
        self._timeout_s = run.timeout_s
        self._job = job
        self._launcher = launcher
        self._captures = [Capture(file, limit_bytes, self._give_up) for file in files]
        self._tree: Tree | None = None
        self._verdict: tuple[Outcome, str] | None = None
        self._peak_memory_bytes = 0
        self._began = time.monotonic()
        self._wall_s: float | None = None

    @property
    def held(self) -> Held:
        wall_s = time.monotonic() - self._began if self._wall_s is None else self._wall_s
        return Held(self.id, wall_s, self.usage.cpu_s)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Kill it, unless it has ended; the first call says what for."""
        self._verdict = self._verdict or (outcome, reason)
        if self._tree:
            self._tree.kill()

    def measure(self) -> None:
        if self._tree:
            usage = self._tree.measure()
            self.usage = replace(usage, cpu_s=max(usage.cpu_s, self.usage.cpu_s))
            self._peak_memory_bytes = max(self._peak_memory_bytes, usage.memory_bytes)

    async def execute(self) -> Result:
        try:
            ended = Ended(killed=True) if self._verdict else await self._run()
            outcome, reason = self._judge(ended)
            stdout, stderr = [await capture.finish(outcome in _WHOLE) for capture in self._captures]
        except OSError as error:
            self.trouble = self.trouble or f"cannot run a task here: {error}"
            return Result(self.id, Outcome.GIVEN_BACK, reason=self.trouble[:500])
        return Result(
            self.id,
            outcome,
            ended.exit_code,
            reason[:500],
            self.held.wall_s,
            self.usage.cpu_s,
            self._peak_memory_bytes,
            stdout,
            stderr,
        )

    async def _run(self) -> Ended:
        tree = await self._start()
        timeout = None
        if self._timeout_s is not None:
            reason = f"timed out after {self._timeout_s:g} s"
            timeout = asyncio.get_running_loop().call_later(self._timeout_s, self.end, Outcome.FAILED, reason)
        ended = await tree.wait()
        if timeout:
            timeout.cancel()
        self._account(ended)
        for capture in self._captures:
            await capture.drain()
        return ended

    async def _start(self) -> Tree:
        pipes: list[int] = []
        try:
            scratch.make(self._job.folder)
            for capture in self._captures:
                pipes.append(await capture.open())
            self._began = time.monotonic()
            self._tree = await self._launcher.start(self._job, *pipes)
        finally:
            for pipe in pipes:
                os.close(pipe)
        if self._verdict:
            self._tree.kill()
        return self._tree

    def _account(self, ended: Ended) -> None:
        self._wall_s = time.monotonic() - self._began
        self._tree = None
        self._peak_memory_bytes = max(self._peak_memory_bytes, ended.peak_memory_bytes)
        self.usage = Usage(max(self.usage.cpu_s, ended.cpu_s))
        self.spent_cpu_s = self.usage.cpu_s + ended.overhead_s

    def _judge(self, ended: Ended) -> tuple[Outcome, str]:
        if self.trouble:
            return Outcome.GIVEN_BACK, self.trouble
        if self._verdict and (ended.killed or ended.trouble):
            return self._verdict
        if ended.trouble:
            self.trouble = ended.trouble
            return Outcome.GIVEN_BACK, ended.trouble
        if ended.refusal:
            program = "".join(self._job.command[:1]) or "an empty command"
            return Outcome.FAILED, f"cannot run {program}: {ended.refusal}"
        if ended.exit_code == 0:
            return Outcome.SUCCEEDED, ""
        return Outcome.FAILED, _KILLED_BY_OTHERS if ended.exit_code == -9 else ""

    def _give_up(self, error: OSError) -> None:
        """Its output cannot be kept: it would run in vain."""
        self.trouble = f"cannot keep its output: {error}"
        self.end(Outcome.GIVEN_BACK, self.trouble)
