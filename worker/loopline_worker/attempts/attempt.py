"""An attempt from its Run to its Result: a process tree in a scratch folder, its output captured."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from loopline_shared.model import Held, Outcome, Output, OutputFile, Result, Stream
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import scratch
from loopline_worker.attempts.capture import Capture
from loopline_worker.attempts.limits import Breach
from loopline_worker.attempts.stopwatch import Stopwatch
from loopline_worker.attempts.watch import Watch, fills
from loopline_worker.files.outputs import OutputsError
from loopline_worker.files.staging import StagingError
from loopline_worker.files.task_files import TaskFiles
from loopline_worker.functions.results import take
from loopline_worker.launch.interface import Ended, Job, Launcher, LaunchListener, Prefetching, Tree, Usage
from loopline_worker.state.spool import Spool
from loopline_worker.timings import FIRST_CHECK_S

_WHOLE = (Outcome.SUCCEEDED, Outcome.FAILED)
"""Outcomes after which somebody wants to read the output; otherwise only its beginning is kept."""


_KILLED_BY_OTHERS = "killed by another program, or by the system for lack of memory"


class Attempt:
    """An attempt with its process tree. It ends in exactly one Result, whatever happens."""

    def __init__(
        self,
        run: Run,
        job: Job,
        launcher: Launcher,
        spool: Spool,
        limit_bytes: int,
        task_files: TaskFiles | None = None,
    ) -> None:
        """Prepare an attempt; nothing runs yet.

        ``spool`` receives stdout and stderr if they are long, each up to ``limit_bytes``, and a long value of a
        function. ``task_files`` has the task's inputs and outputs, if there are any.
        """
        self.id = run.attempt
        self.job_name = run.job_name
        self.slots = run.slots
        self.is_frozen = False
        self.is_prefetched = False  # a supervisor begins it later
        self.folder_is_left = True
        self.trouble = ""  # what this computer could not do
        self.usage = Usage()  # when last measured
        self.spent_cpu_s = 0.0  # all that it cost here, known at its end
        self._timeout_s = run.timeout_s
        self._job = job
        self._spool = spool
        self._task_files = task_files
        self._setting_up: asyncio.Task[None] | None = None
        self._launcher = launcher
        self._stdout = Capture(lambda: spool.output_files(run.attempt)[0], limit_bytes, self._give_up)
        self._stderr = Capture(lambda: spool.output_files(run.attempt)[1], limit_bytes, self._give_up)
        self._watch: Watch | None = None
        self._tree: Tree | None = None
        self._is_followed = False
        self._verdict: tuple[Outcome, str] | None = None
        self._peak_memory_bytes = 0
        self._ran = Stopwatch()
        self._has_stood = False
        self._wall_s: float | None = None  # as measured by who ran it
        self._began = math.inf  # by ``time.monotonic``

    @property
    def folder(self) -> Path:
        return Path(self._job.folder)

    @property
    def is_unwanted(self) -> bool:
        """True once the attempt was told to end."""
        return self._verdict is not None

    @property
    def held(self) -> Held:
        """Return the attempt as a Report has it."""
        return Held(self.id, self._ran.elapsed_s, self.usage.cpu_s, self.is_frozen)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Kill the attempt unless it has ended. The first call decides the outcome and the reason."""
        self._verdict = self._verdict or (outcome, reason)
        if self._setting_up:
            self._setting_up.cancel()
        if self._task_files:
            self._task_files.give_up()
        if self._tree:
            self._tree.kill()

    def freeze(self) -> None:
        """Freeze the whole tree. Frozen time does not count against the time limit."""
        self.is_frozen = self._has_stood = True
        self._ran.stop()
        if self._tree:
            self._tree.freeze()

    def thaw(self) -> None:
        """Let a frozen tree go on."""
        self.is_frozen = False
        if self._tree:
            self._ran.start()
            self._tree.thaw()

    async def read(self, stream: Stream, offset: int, most_bytes: int) -> bytes:
        """Return output from this byte on, as soon as there is any; empty at the end of the output."""
        self._is_followed = True
        if self._tree:
            self._tree.follow()
        return await (self._stdout if stream == "stdout" else self._stderr).read(offset, most_bytes)

    def is_still(self) -> bool:
        """True if no process of it runs."""
        return self._tree is None or self._tree.is_still()

    def measure(self) -> None:
        """Measure what the tree has used until now."""
        if self._tree:
            usage = self._tree.measure()
            self.usage = replace(usage, cpu_s=max(usage.cpu_s, self.usage.cpu_s))
            self._peak_memory_bytes = max(self._peak_memory_bytes, usage.memory_bytes)

    def look(self, now: float) -> None:
        """Check the limits if a check is due; kill the task if it exceeds one."""
        if self._tree is None or now < self._began + FIRST_CHECK_S:
            return
        if self._watch is None:
            self._watch = Watch(self._job.limits, self.folder, self._measure_now, self._output_bytes, self._break_off)
        self._watch.look(now)

    # With a launcher that prefetches.

    def is_for(self, prefetching: Prefetching) -> bool:
        """True if the launcher can start this task at once."""
        return prefetching.takes(self._job)

    def begin(self, prefetching: Prefetching, listener: LaunchListener) -> None:
        """Start the task at once. Raises OSError if this computer cannot."""
        self._take(prefetching.begin(listener, self.id, self._job, self._stdout, self._stderr))
        self.begins()

    def prefetch(self, prefetching: Prefetching, listener: LaunchListener) -> None:
        """Prefetch the task: ``begins()`` is called once it has started."""
        self.is_prefetched = True
        self._take(prefetching.prefetch(listener, self.id, self._job, self._stdout, self._stderr))

    def begins(self) -> None:
        """Start the clock: the task starts now."""
        self.is_prefetched = False
        self._ran = Stopwatch()
        self._began = time.monotonic()
        if self._timeout_s is not None:
            self._ran.limit(self._timeout_s, self._time_out)

    def ended(self, ended: Ended) -> Result | None:
        """Return the result; None if finding it takes a while, which is what ``conclude`` is for."""
        self._account(ended)
        if ended.exit_code and ended.folder_is_left:
            return None
        outcome, reason = self._judge(ended)
        return None if self._has_value_file(ended, outcome) else self._result(ended, outcome, reason)

    # Steps that take a while.

    async def execute(self) -> Result:
        """Run the task from where it stands to its end, and return the result."""
        try:
            ended = Ended(killed=True) if self._verdict and not self._tree else await self._run()
        except OSError as error:
            return self.fail(error)
        return await self.conclude(ended)

    async def conclude(self, ended: Ended) -> Result:
        """Check for a full scratch folder, collect outputs and value, and return the result."""
        try:
            ended = await self._with_breach(ended)
            outcome, reason = self._judge(ended)
            outputs: tuple[OutputFile, ...] = ()
            if self._task_files:
                outcome, reason, outputs = await self._take_back(*await self._collect(outcome, reason))
            if self._has_value_file(ended, outcome):
                ended = replace(ended, value=await self._take_value())
        except OSError as error:
            return self.fail(error)
        return self._result(ended, outcome, reason, outputs)

    def fail(self, error: OSError) -> Result:
        """Return the result of a task that this computer cannot run."""
        self.trouble = self.trouble or f"cannot run a task here: {error}"
        return Result(self.id, Outcome.GIVEN_BACK, reason=self.trouble[:500])

    def _result(self, ended: Ended, outcome: Outcome, reason: str, outputs: tuple[OutputFile, ...] = ()) -> Result:
        is_whole = outcome in _WHOLE
        try:
            stdout, stderr = self._stdout.finish(is_whole), self._stderr.finish(is_whole)
        except OSError as error:
            return self.fail(error)
        return Result(
            self.id,
            outcome,
            ended.exit_code,
            reason[:500],
            self._ran.elapsed_s if self._wall_s is None else self._wall_s,
            self.usage.cpu_s,
            self._peak_memory_bytes,
            stdout,
            stderr,
            outputs,
            ended.value if is_whole else None,
            ended.system_s,
        )

    def _has_value_file(self, ended: Ended, outcome: Outcome) -> bool:
        """True if the return value or error of a function has to be read from its file."""
        return self._job.call is not None and not ended.value and outcome in _WHOLE

    async def _take_value(self) -> Output | None:
        file = self._spool.value_file(self.id)
        return await asyncio.to_thread(take, self.folder, file, self._job.limits.value_bytes)

    async def clear_up(self) -> None:
        """Detach linked inputs before the scratch folder is deleted, however the task has ended."""
        if self._task_files:
            with suppress(StagingError):
                await self._task_files.take_back()

    async def _collect(self, outcome: Outcome, reason: str) -> tuple[Outcome, str, tuple[OutputFile, ...]]:
        """Collect the outputs of a successful task, which fails if one of them is missing."""
        if outcome is not Outcome.SUCCEEDED or self._task_files is None:
            return outcome, reason, ()
        try:
            collected = await self._task_files.collect()
        except OutputsError as error:
            return *(self._verdict or (Outcome.FAILED, str(error))), ()
        return outcome, "; ".join(filter(None, (reason, collected.remark))), collected.files

    async def _take_back(
        self, outcome: Outcome, reason: str, outputs: tuple[OutputFile, ...]
    ) -> tuple[Outcome, str, tuple[OutputFile, ...]]:
        """Detach linked inputs. If the task altered one, its exit status is not trusted."""
        if outcome in _WHOLE and self._task_files:
            try:
                await self._task_files.take_back()
            except StagingError as error:
                return *(self._verdict or (error.outcome, str(error))), ()
        return outcome, reason, outputs

    async def _run(self) -> Ended:
        tree = self._tree or await self._begin()
        if tree is None:
            return Ended(killed=True)
        try:
            ended = await tree.wait()
        finally:
            self._stop_watching()
        self._account(ended)
        for stream in (self._stdout, self._stderr):
            if stream.is_piped:
                await stream.drain()
        return ended

    async def _with_breach(self, ended: Ended) -> Ended:
        """Return the end with a breach of the scratch limit, if that explains the failure."""
        limit_bytes = self._job.limits.scratch_bytes
        if not (limit_bytes and ended.exit_code and ended.folder_is_left) or ended.breach:
            return ended
        is_full = await asyncio.to_thread(fills, self.folder, limit_bytes)
        return replace(ended, breach=Breach.SCRATCH) if is_full else ended

    async def _begin(self) -> Tree | None:
        """Start the task; None if it was told to end meanwhile."""
        if not self._job.makes_folder:
            await self._set_up()
        if self._verdict:
            return None
        self.begins()
        self._take(tree := await self._launcher.start(self._job, self._stdout, self._stderr))
        return tree

    async def _set_up(self) -> None:
        """Make the scratch folder and stage the inputs; end the attempt if one cannot be had."""
        await asyncio.to_thread(scratch.make, self.folder)
        if self._task_files and not self._verdict:
            self._setting_up = asyncio.create_task(self._task_files.stage())
            try:
                await asyncio.wait([self._setting_up])
            finally:
                self._setting_up.cancel()
            if not self._setting_up.cancelled() and (error := self._setting_up.exception()):
                if not isinstance(error, StagingError):
                    raise error
                self.end(error.outcome, str(error))

    def _take(self, tree: Tree) -> None:
        """Apply to a new tree whatever the attempt was told before."""
        self._tree = tree
        if self._is_followed:
            tree.follow()
        if self._verdict:
            tree.kill()
        elif self.is_frozen:
            self.freeze()

    def _measure_now(self) -> Usage:
        self.measure()
        return self.usage

    def _output_bytes(self) -> int:
        return max(self._stdout.size_bytes, self._stderr.size_bytes)

    def _break_off(self, breach: Breach) -> None:
        self.end(Outcome.FAILED, self._job.limits.words(breach))

    def _stop_watching(self) -> None:
        self._ran.stop()
        if self._watch:
            self._watch.stop()

    def _account(self, ended: Ended) -> None:
        self._stop_watching()
        self._tree = None
        self._wall_s = None if self._has_stood else ended.elapsed_s
        self.folder_is_left = ended.folder_is_left
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
            return Outcome.FAILED, f"cannot run {'a function' if self._job.call else program}: {ended.refusal}"
        if ended.exit_code == 0:
            return Outcome.SUCCEEDED, _about_strays(ended.strays)
        if ended.breach:
            return Outcome.FAILED, self._job.limits.words(ended.breach)
        return Outcome.FAILED, ended.reason or (_KILLED_BY_OTHERS if ended.exit_code == -9 else "")

    def _time_out(self) -> None:
        self.end(Outcome.FAILED, f"timed out after {self._timeout_s:g} s")

    def _give_up(self, error: OSError) -> None:
        """End the attempt because its output cannot be kept: it would run in vain."""
        self.trouble = f"cannot keep its output: {error}"
        self.end(Outcome.GIVEN_BACK, self.trouble)


def _about_strays(count: int) -> str:
    return f"{count} processes that it left running were stopped: nothing outlives its task" if count else ""
