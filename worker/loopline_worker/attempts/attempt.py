"""An attempt from its Run to its Result: a process tree in a scratch folder, its output captured."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from loopline_shared.model import Held, Outcome, OutputFile, Result, Stream
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import progress_file, result_file, scratch
from loopline_worker.attempts.agent_wing import AttemptPart
from loopline_worker.attempts.attempt_clock import AttemptClock
from loopline_worker.attempts.capture import Capture
from loopline_worker.attempts.judge import Verdict, is_read, judge, with_last_line, with_network_hint
from loopline_worker.attempts.limits import Watch, fills, is_over, time_to_fill
from loopline_worker.files.outputs import OutputsError
from loopline_worker.files.staging import StagingError
from loopline_worker.files.task_files import TaskFiles
from loopline_worker.functions.results import read_result
from loopline_worker.host import own_code
from loopline_worker.launch.interface import (
    Ended,
    Job,
    Launcher,
    Prefetching,
    PrefetchListener,
    Tree,
    Usage,
)
from loopline_worker.state.journal import Spool
from loopline_worker.supervisor.orders import Breach
from loopline_worker.timings import FIRST_CHECK_S

log = logging.getLogger(__name__)

_LEAST_FREE_BYTES = 2**20
"""Below this the disk counts as full: a task may have failed because it could not write."""


class Attempt:
    """Handle of an attempt: ends, freezes, reads and measures its process tree, and keeps it within its limits.

    ``run`` leads from the preparation to the only Result. The other methods may be called at any time during it.
    """

    def __init__(
        self,
        run: Run,
        job: Job,
        spool: Spool,
        limit_bytes: int,
        *,
        task_files: TaskFiles | None = None,
        parts: Sequence[AttemptPart] = (),
    ) -> None:
        """Prepare an attempt; nothing runs yet.

        ``spool`` receives stdout and stderr if they are long, each up to ``limit_bytes``, and a long value of a
        function. ``task_files`` has the task's inputs and outputs, if there are any; ``parts`` are those of wings.
        """
        self.id = run.attempt
        self.job_name = run.job_name
        self.slots = run.slots
        self.slot = 0  # the lowest number of them; 0: not known
        self.is_frozen = False
        self.is_prefetched = False  # a supervisor begins it later
        self.is_taken_back = False  # it was prefetched, and has neither started nor a result
        self.folder_is_left = True  # there is a scratch folder to remove, once ``run`` is over
        self.trouble = ""  # this computer's failure
        self.obstructs = True  # the failure concerns other tasks too, until files can be written
        self._took_down = False
        self.usage = Usage()  # when last measured
        self.spent_cpu_s = 0.0  # CPU time of the task and its supervisor, known at its end
        self._timeout_s, self._kill_after_s = run.timeout_s, run.kill_after_s
        self._killing: asyncio.TimerHandle | None = None  # SIGTERM was sent, SIGKILL follows
        self._job = job
        self._spool = spool
        self._task_files = task_files
        self._parts = parts
        self._setting_up: asyncio.Task[None] | None = None
        self._may_start: asyncio.Event | None = None  # while it is frozen before its start
        self._stdout = Capture(lambda: spool.output_files(run.attempt)[0], limit_bytes, self._on_output_error)
        self._stderr = Capture(lambda: spool.output_files(run.attempt)[1], limit_bytes, self._on_output_error)
        self._watch: Watch | None = None
        self._tree: Tree | None = None
        self._is_followed = False
        self._verdict: Verdict | None = None  # the requested outcome and reason, if it must end
        self._peak_memory_bytes = 0
        self._progress: float | None = None
        self._progress_remark = ""
        self._clock = AttemptClock()
        for part in parts:
            part.attach(self)

    @property
    def room(self) -> Path | None:
        """The folder of its session, around its own; None for a command."""
        return Path(self._job.room) if self._job.room else None

    @property
    def folder(self) -> Path:
        return Path(self._job.folder)

    @property
    def streams(self) -> tuple[Capture, Capture]:
        """The captures of stdout and stderr."""
        return self._stdout, self._stderr

    @property
    def is_unwanted(self) -> bool:
        """True once ``end`` was called."""
        return self._verdict is not None

    @property
    def held(self) -> Held:
        """Return the attempt as a Report has it."""
        wall_s, in_slot_s = self._clock.wall_s, self._clock.in_slot_s
        return Held(
            self.id, wall_s, self.usage.cpu_s, self.is_frozen,
            slot=self.slot, in_slot_s=in_slot_s, progress=self._progress,
        )  # fmt: skip

    def end(self, outcome: Outcome, reason: str = "", *, grace_s: float = 0.0) -> None:
        """End the attempt unless it has ended. The first call decides the outcome and the reason.

        With ``grace_s`` its processes get SIGTERM, and SIGKILL after that time, or its job's ``kill_after_s`` if that
        is less. A frozen attempt could not use the time, and is killed at once.
        """
        self._verdict = self._verdict or (outcome, reason)
        if self._setting_up:
            self._setting_up.cancel()
        if self._may_start:
            self._may_start.set()
        if self._task_files and outcome is not Outcome.FAILED:  # the files of a failed task are kept
            self._task_files.give_up()
        if self._tree:
            grace_s = min(grace_s, self._kill_after_s)
            if not grace_s or self.is_frozen:
                self._tree.kill()
            elif self._killing is None and not self._tree.has_ended:
                self._killing = asyncio.get_running_loop().call_later(grace_s, self._tree.kill)
                self._tree.terminate()

    def freeze(self) -> None:
        """Freeze the whole tree. Frozen time does not count against the time limit.

        A task that was sent SIGTERM is killed: it cannot react while it is frozen.
        """
        if self._killing and self._tree:
            self._tree.kill()
            return
        self.is_frozen = True
        self._clock.freeze()
        if self._tree:
            self._tree.freeze()
        for part in self._parts:
            part.on_frozen(True)

    def thaw(self) -> None:
        """Continue a frozen tree."""
        self.is_frozen = False
        if self._may_start:
            self._may_start.set()
        if self._tree:
            self._clock.thaw()
            self._tree.thaw()
        for part in self._parts:
            part.on_frozen(False)

    def forget(self) -> None:
        """Have the wings release the attempt's resources: its result was posted, and its folder is removed."""
        for part in self._parts:
            part.after_end()

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
        """Measure the tree's usage until now, and read its progress."""
        if self._tree:
            try:
                self._progress, self._progress_remark = progress_file.read(self.folder), ""
            except ValueError:
                self._progress, self._progress_remark = None, progress_file.REMARK
            usage = self._tree.measure()
            self.usage = replace(usage, cpu_s=max(usage.cpu_s, self.usage.cpu_s))
            self._peak_memory_bytes = max(self._peak_memory_bytes, usage.memory_bytes)

    def check(self, now: float) -> float:
        """Check the limits if a check is due; kill the task if it exceeds one. Return when the next is due."""
        first = self._clock.began_at + min(FIRST_CHECK_S, time_to_fill(self._job.limits.memory_bytes))
        if self._tree is None or now < first:
            return first if self._tree else math.inf
        if self._watch is None:
            self._watch = Watch(self._job.limits, self.folder, self._measure_now, self._output_bytes, self._on_breach)
        return self._watch.check(now)

    def prefetch(self, prefetching: Prefetching, listener: PrefetchListener) -> None:
        """Prefetch the task: ``begins()`` is called once it has started. Raises OSError."""
        self.is_prefetched = True
        self._bring_up_to_date(prefetching.prefetch(listener, self.id, self._job, self._stdout, self._stderr))

    def begins(self) -> None:
        """Start the clock: the task starts now."""
        self.is_prefetched = False
        limit_s = self._timeout_s
        if limit_s is not None and self._parts:
            limit_s = max(0.0, limit_s - sum(part.earlier_s for part in self._parts))
        self._clock.begins(limit_s, self._on_timeout)

    # From its start to its result.

    async def run(self, launcher: Launcher) -> Result | None:
        """Run the task, unless a supervisor has it already, and return its result; None if it was taken back."""
        try:
            ended = await self._until_end(launcher)
        except OSError as error:
            ended = Ended(trouble=f"cannot run a task here: {error}", elapsed_s=0.0)
        if self.is_taken_back:
            return None
        if self.is_prefetched:  # its supervisor was lost before it reported the start
            self.begins()
        ended = self._record_end(ended)
        try:
            result = await self._conclude(ended)
        except OSError as error:
            result = self._fail(error)
        finally:
            await self._detach()
        for part in self._parts:
            result = part.complete(result)
        return result

    async def _until_end(self, launcher: Launcher) -> Ended:
        """Start the task, and wait until all its processes are gone. Raises OSError if it cannot run here."""
        if self._tree is None:
            await self._prepare()
            if self._verdict:
                if self._job.makes_folder:  # the launcher makes the folder, so there is none yet
                    return Ended(killed=True, elapsed_s=0.0, folder_is_left=False)
                return Ended(killed=True)
            self.begins()
            self._bring_up_to_date(await launcher.start(self._job, self._stdout, self._stderr, self.id))
        assert self._tree
        try:
            ended = await self._tree.wait()
        finally:
            self._clock.stop()
            self._stop_watching()
        for stream in (self._stdout, self._stderr):
            if stream.is_piped:
                await stream.drain()
        return ended

    async def _prepare(self) -> None:
        """Set up the folder, unless the launcher does, then wait for a thaw: a frozen attempt does not start."""
        if not (self._job.makes_folder or self._verdict):
            await self._set_up()
        while self.is_frozen and not self._verdict:
            self._may_start = asyncio.Event()
            await self._may_start.wait()

    async def _set_up(self) -> None:
        """Make and fill the scratch folder; end the attempt if an input or its software is missing."""
        await asyncio.to_thread(scratch.make, self.folder)
        if self._verdict:
            return
        self._setting_up = asyncio.create_task(self._fill())
        try:
            await asyncio.wait([self._setting_up])
        finally:
            self._setting_up.cancel()
        if not self._setting_up.cancelled() and (error := self._setting_up.exception()):
            if not isinstance(error, StagingError):
                raise error
            self.end(error.outcome, str(error))

    async def _fill(self) -> None:
        """Get software, then inputs, then wait until every wing permits the start. Cancelled by ``end``."""
        if self._task_files or any(part.prepares for part in self._parts):
            self._clock.sets_up()
            for part in self._parts:
                await part.prepare(self._job)
            if self._task_files:
                await self._task_files.stage()
            self._clock.has_inputs()
        for part in self._parts:
            await part.before_start()

    def _bring_up_to_date(self, tree: Tree) -> None:
        """Apply earlier calls of ``read``, ``end`` and ``freeze`` to a new tree."""
        self._tree = tree
        for part in self._parts:
            part.started(tree)
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

    def _on_breach(self, breach: Breach) -> None:
        self.end(Outcome.FAILED, self._job.limits.words(breach))

    def _stop_watching(self) -> None:
        if self._watch:
            self._watch.stop()

    def _on_timeout(self) -> None:
        self.end(Outcome.FAILED, f"timed out after {self._timeout_s:g} s", grace_s=math.inf)

    def _on_output_error(self, error: OSError) -> None:
        """End the attempt, because its output cannot be kept."""
        self.trouble, self._took_down = f"cannot keep its output: {error}", True
        self.end(Outcome.GIVEN_BACK, self.trouble)

    # Its end.

    def _record_end(self, ended: Ended) -> Ended:
        """Record the end and the usage. Return the end, with a breach of the output limit if there was one."""
        self._stop_watching()
        self._tree = None
        if self._killing:
            self._killing.cancel()
        self._clock.ends(ended.elapsed_s)
        self.folder_is_left = ended.folder_is_left
        self._peak_memory_bytes = max(self._peak_memory_bytes, ended.peak_memory_bytes)
        self.usage = Usage(max(self.usage.cpu_s, ended.cpu_s))
        self.spent_cpu_s = self.usage.cpu_s + ended.overhead_s
        if not self._verdict:
            self.trouble = self.trouble or ended.trouble
            self._took_down, self.obstructs = bool(self.trouble), not ended.took_down
            self.trouble = self.trouble or self._lack_of_disk(ended)
        if is_over(self._output_bytes(), self._job.limits.output_bytes):  # it ended before the watch could kill it
            return replace(ended, breach=Breach.OUTPUT)
        return ended

    def _judge(self, ended: Ended) -> Verdict:
        """Return the verdict. A task that was asked to end counts as ended, even if it exits by itself."""
        ended = replace(ended, killed=True) if self._killing else ended
        return judge(ended, self._job, self._verdict, self.trouble)

    def _lack_of_disk(self, ended: Ended) -> str:
        """Return the trouble if a full disk may be why the task failed; empty if the disk is not full."""
        if not ended.exit_code or ended.breach:
            return ""
        with suppress(OSError):
            if shutil.disk_usage(self.folder.parent).free < _LEAST_FREE_BYTES:
                return "the disk was full as the task failed"
        return ""

    async def _conclude(self, ended: Ended) -> Result:
        """Collect outputs, value and metrics, depending on the outcome, and return the result. Raises OSError."""
        ended = await self._with_breach(ended)
        verdict = self._judge(ended)
        for part in self._parts:
            verdict = await part.on_end(ended, verdict)
        outcome, reason = verdict
        outputs: tuple[OutputFile, ...] = ()
        is_final = False
        if self._task_files and outcome is Outcome.SUCCEEDED:
            (outcome, reason), outputs, is_final = await self._collect(self._task_files, reason)
        elif self._task_files and outcome is Outcome.FAILED:
            outputs = await self._collect_of_failed(self._task_files)
        if self._task_files and is_read(outcome):
            try:
                await self._task_files.detach()
            except StagingError as error:  # the task altered one: its exit status is not trusted
                (outcome, reason), outputs, is_final = self._verdict or (error.outcome, str(error)), (), False
        if self._job.call and not ended.value and is_read(outcome):
            value_file = self._spool.value_file(self.id)
            value = await asyncio.to_thread(read_result, self.folder, value_file, self._job.limits.value_bytes)
            ended = replace(ended, value=value)
        metrics, remark = None, ""
        if is_read(outcome) and ended.folder_is_left and result_file.exists(self.folder):
            metrics, remark = await asyncio.to_thread(result_file.read, self.folder)
        if outcome is Outcome.SUCCEEDED:
            reason = "; ".join(filter(None, (reason, remark, self._progress_remark)))
        return self._result(ended, (outcome, reason), outputs, metrics, is_final)

    async def _with_breach(self, ended: Ended) -> Ended:
        """Return the end with a breach of the scratch limit, if that explains the failure."""
        limit_bytes = self._job.limits.scratch_bytes
        if not (limit_bytes and ended.exit_code and ended.folder_is_left) or ended.breach:
            return ended
        is_full = await asyncio.to_thread(fills, self.folder, limit_bytes)
        return replace(ended, breach=Breach.SCRATCH) if is_full else ended

    async def _collect(self, task_files: TaskFiles, reason: str) -> tuple[Verdict, tuple[OutputFile, ...], bool]:
        """Collect a successful task's outputs. If one is missing the task fails, finally: the last value is True."""
        try:
            collected = await task_files.collect()
        except OutputsError as error:
            return self._verdict or (Outcome.FAILED, str(error)), (), False
        if collected.problems:
            return (Outcome.FAILED, "; ".join(collected.problems)), collected.files, True
        return (Outcome.SUCCEEDED, "; ".join(filter(None, (reason, collected.remark)))), collected.files, False

    async def _collect_of_failed(self, task_files: TaskFiles) -> tuple[OutputFile, ...]:
        """Collect the outputs of a failed task as far as possible."""
        try:
            return (await task_files.collect()).files
        except OutputsError:
            return ()
        except OSError as error:
            log.warning("the outputs of the failed attempt %s are not kept: %s", self.id, error)
            return ()

    async def _detach(self) -> None:
        """Detach linked inputs before the scratch folder is deleted, regardless of the outcome."""
        if self._task_files:
            try:
                await self._task_files.detach()
            except StagingError:
                pass  # the outcome is decided already
            except OSError as error:
                log.warning("cannot clean up after %s: %s", self.id, error)

    def _result(
        self,
        ended: Ended,
        verdict: Verdict,
        outputs: tuple[OutputFile, ...],
        metrics: dict[str, float] | None,
        is_final: bool,
    ) -> Result:
        outcome, reason = verdict
        is_whole = is_read(outcome)
        is_blamed = self._took_down and not own_code.own_code.has_changed(at_once=True)  # an upgrade is not its fault
        try:
            stdout, stderr = self._stdout.finish(is_whole), self._stderr.finish(is_whole)
        except OSError as error:
            return self._fail(error)
        if outcome is Outcome.FAILED:
            reason = with_last_line(reason, ended.exit_code, self._stderr.last_line)
            reason = with_network_hint(reason, self._job)
        return Result(
            self.id,
            outcome,
            ended.exit_code,
            reason[:500],
            self._clock.wall_s,
            self.usage.cpu_s,
            self._peak_memory_bytes,
            stdout,
            stderr,
            outputs,
            ended.value if is_whole else None,
            ended.system_s,
            is_final=is_final,
            metrics=metrics,
            slot=self.slot,
            phases=self._clock.phases(has_outputs=bool(outputs)),
            took_down=outcome is Outcome.GIVEN_BACK and is_blamed,
        )

    def _fail(self, error: OSError) -> Result:
        """Return the result of a task whose output this computer cannot keep."""
        self.trouble = self.trouble or f"cannot run a task here: {error}"
        return Result(
            self.id,
            Outcome.GIVEN_BACK,
            reason=self.trouble[:500],
            slot=self.slot,
            took_down=not own_code.own_code.has_changed(at_once=True),
        )
