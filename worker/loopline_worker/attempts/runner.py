"""The runner of processes: starts, measures and ends the processes of all attempts in hand."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from loopline_shared.model import AttemptId, Held, Outcome, Stream
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import scratch
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.attempts.attempt import Attempt
from loopline_worker.attempts.limits import Quota
from loopline_worker.attempts.preparation import Preparation
from loopline_worker.core.events import AttemptEnded, Cleared, Event, Followed, Retracted, Returned
from loopline_worker.files.task_files import AttemptFiles
from loopline_worker.launch.interface import Launcher
from loopline_worker.state.journal import Spool
from loopline_worker.task_group import TaskGroup
from loopline_worker.timings import CHECK_CLOSELY_EVERY_S, CHECK_DUE_EVERY_S, STOP_GRACE_S

log = logging.getLogger(__name__)


class Runner:
    """Keeps a handle for each attempt, by its id. Each Run leads to exactly one Result, posted with AttemptEnded.

    The machine (core/machine.py) decides the state of an attempt. The runner carries out its instructions, and posts
    events about processes.
    """

    def __init__(
        self,
        task_group: TaskGroup,
        launcher: Launcher,
        spool: Spool,
        scratch_folder: Path,
        post: Callable[[Event], None],
        *,
        worker: str,
        output_limit_bytes: int,
        quota: Quota | None = None,
        attempt_files: AttemptFiles | None = None,
        wings: Sequence[AgentWing] = (),
    ) -> None:
        self._task_group = task_group
        self._launcher = launcher
        self._spool = spool
        self._preparation = Preparation(worker, scratch_folder, quota or Quota())
        self._output_limit_bytes = output_limit_bytes
        self._post = post
        self._attempt_files = attempt_files
        self._wings = wings
        self._prefetching = launcher.prefetching
        self._attempts: dict[AttemptId, Attempt] = {}
        self._none_left = asyncio.Event()
        self._next_check: asyncio.TimerHandle | None = None
        self._closed = ""  # why nothing is started any more
        self._past_cpu_s = 0.0

    def start(self, run: Run, slot: int = 0) -> None:
        """Start an attempt now, in this slot, unless a wing has it wait."""
        attempt = self._attempts[run.attempt] = self._attempt(run)
        attempt.slot = slot
        if self._closed:
            attempt.end(Outcome.GIVEN_BACK, self._closed)
        elif run.row_file:
            attempt.end(Outcome.FAILED, "its parameters are lost: the master no longer has the job's row file")
        self._task_group.start(self._run(attempt))
        if self._next_check is None:
            self._check_limits()

    def room(self) -> int:
        """Return how many more attempts may be prefetched now."""
        return self._prefetching.room() if self._prefetching else 0

    def prefetch(self, run: Run) -> None:
        """Prefetch an attempt, which starts when another one's slot is free; requires ``room()``."""
        assert self._prefetching
        attempt = self._attempts[run.attempt] = self._attempt(run)
        try:
            attempt.prefetch(self._prefetching, self)
        except OSError:
            self.returned([run.attempt])
        else:
            self._task_group.start(self._run(attempt))

    def retract(self) -> None:
        """Retract all prefetched attempts: each that has not started is returned."""
        if self._prefetching:
            self._prefetching.retract()
        self._post(Retracted())

    def _attempt(self, run: Run) -> Attempt:
        job = self._preparation.job_of(run)
        task_files = (
            self._attempt_files.files_of(run, Path(job.folder)) if self._attempt_files and run.has_files else None
        )
        wings = (wing for wing in self._wings if any(getattr(run, field) for field in wing.concerns))
        parts = [part for wing in wings if (part := wing.prepare(run, job))]
        return Attempt(run, job, self._spool, self._output_limit_bytes, task_files=task_files, parts=parts)

    def cancel(
        self, attempt: AttemptId, outcome: Outcome = Outcome.CANCELLED, reason: str = "", *, gently: bool = False
    ) -> None:
        """End an attempt, unless it has ended by itself: at once, or ``gently``, by SIGTERM first."""
        if attempt in self._attempts:
            limit_s = STOP_GRACE_S if outcome is Outcome.GIVEN_BACK else math.inf
            self._attempts[attempt].end(outcome, reason, grace_s=limit_s if gently else 0.0)

    def freeze(self, attempt: AttemptId) -> bool:
        """Freeze an attempt until it is thawed or ended. Return True if all its processes are stopped already."""
        if attempt not in self._attempts:
            return True
        self._attempts[attempt].freeze()
        return self._attempts[attempt].is_still()

    def thaw(self, attempt: AttemptId) -> None:
        """Continue a frozen attempt."""
        if attempt in self._attempts:
            self._attempts[attempt].thaw()

    async def read(self, attempt: AttemptId, stream: Stream, offset: int, most_bytes: int) -> bytes:
        """Return output from this byte on, as soon as there is any; empty at its end or if it is unknown."""
        if attempt not in self._attempts:
            return b""
        return await self._attempts[attempt].read(stream, offset, most_bytes)

    def in_hand(self) -> list[tuple[str, Held]]:
        """Return the job's name and the state of every attempt that has begun, the oldest first."""
        return [(attempt.job_name, attempt.held) for attempt in self._begun()]

    def held(self, attempt: AttemptId) -> Held:
        """Return an attempt as a Report has it."""
        return self._attempts[attempt].held if attempt in self._attempts else Held(attempt)

    def measure(self) -> float:
        """Measure the running attempts. Return the CPU seconds of all attempts since the agent started."""
        begun = self._begun()
        for attempt in begun:
            attempt.measure()
        return self._past_cpu_s + sum(attempt.usage.cpu_s for attempt in begun)

    async def close(self, reason: str) -> None:
        """Preempt running and later attempts, and wait until every result is posted."""
        self._closed = reason
        for attempt in self._begun():
            attempt.end(Outcome.GIVEN_BACK, reason, grace_s=STOP_GRACE_S)
        while self._attempts:
            self._none_left.clear()
            await self._none_left.wait()

    def _begun(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.is_prefetched]

    def _check_limits(self) -> None:
        """Check the limits of all attempts, and repeat while there are any."""
        now = time.monotonic()
        due = min([attempt.check(now) for attempt in list(self._attempts.values())], default=math.inf)
        self._next_check = None
        if self._attempts:
            pause_s = min(CHECK_DUE_EVERY_S, max(CHECK_CLOSELY_EVERY_S, due - now))
            self._next_check = asyncio.get_running_loop().call_later(pause_s, self._check_limits)

    # PrefetchListener. An error in these methods is the agent's own failure.

    def begins(self, name: AttemptId, before: AttemptId) -> None:
        """Note that a prefetched attempt has started in the slot of another."""
        self._task_group.do(partial(self._begins, name, before))

    def returned(self, names: Sequence[AttemptId]) -> None:
        """Note that these prefetched attempts will not start by themselves."""
        self._task_group.do(partial(self._returned, names))

    def _begins(self, name: AttemptId, before: AttemptId) -> None:
        attempt = self._attempts[name] = self._attempts.pop(name)  # the youngest from now on
        attempt.begins()
        attempt.slot = self._attempts[before].slot
        self._post(Followed(before, name))
        if self._attempts[before].is_frozen:  # the whole slot is frozen
            attempt.freeze()
        if self._closed:
            attempt.end(Outcome.GIVEN_BACK, self._closed)

    def _returned(self, names: Sequence[AttemptId]) -> None:
        wanted = [name for name in names if not self._attempts[name].is_unwanted]
        self._post(Returned(wanted))
        for name in wanted:
            self._attempts.pop(name).is_taken_back = True

    async def _run(self, attempt: Attempt) -> None:
        """Run an attempt, post its result, and remove its folder."""
        result = await attempt.run(self._launcher)
        if result is None:
            return
        leaves_folder = attempt.folder_is_left
        self._post(AttemptEnded(result, attempt.trouble if attempt.obstructs else "", leaves_folder))
        if leaves_folder:
            await asyncio.to_thread(scratch.remove, attempt.folder)
            if attempt.room:
                scratch.remove_empty(attempt.room)  # its session's interpreter may be gone by now
            self._post(Cleared(attempt.id))
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        self._past_cpu_s += attempt.spent_cpu_s
        attempt.forget()
        del self._attempts[attempt.id]
        if not self._attempts:
            self._none_left.set()
