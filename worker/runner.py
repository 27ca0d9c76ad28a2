"""All attempts that are in hand here: starts them, measures them, ends them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from shared.model import AttemptId, Held, Outcome, Result, Stream
from shared.protocol.messages import Run
from worker import scratch
from worker.attempt import Attempt
from worker.crew import Crew
from worker.launch.trees import Job, Launcher
from worker.limits import Quota
from worker.spool import Spool
from worker.task_files import Shelf
from worker.warm.calls import call_of, folder_of
from worker.watch import LOOK_AROUND_S

log = logging.getLogger(__name__)


class Runner:
    """Each Run comes to exactly one Result, handed to ``on_end`` with what this computer could not do, if any."""

    def __init__(
        self,
        crew: Crew,
        launcher: Launcher,
        spool: Spool,
        scratch_folder: Path,
        worker: str,
        output_limit_bytes: int,
        on_end: Callable[[Result, str], Awaitable[None]],
        quota: Quota | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self._crew = crew
        self._launcher = launcher
        self._spool = spool
        self._scratch = scratch_folder
        self._surroundings = scratch.Surroundings(worker)
        self._output_limit_bytes = output_limit_bytes
        self._on_end = on_end
        self._quota = quota or Quota()
        self._shelf = shelf
        self._attempts: dict[AttemptId, Attempt] = {}
        self._none_left = asyncio.Event()
        self._looking: asyncio.TimerHandle | None = None
        self._closed = ""  # why nothing is started any more
        self._past_cpu_s = 0.0

    def start(self, run: Run, refusal: str = "") -> None:
        """``refusal``: why it is given back at once instead."""
        folder = folder_of(run, self._scratch)
        environment = self._surroundings.of(run, folder)
        call = call_of(run, folder)
        room = folder.parent if call else None
        has_files = bool(run.inputs or run.own_inputs or run.outputs)
        limits = self._quota.limits(run)
        job = Job(run.command, folder, environment, limits, run.network, call, room, makes_folder=not has_files)
        task_files = self._shelf.files_of(run, folder) if self._shelf and has_files else None
        attempt = Attempt(run, job, self._launcher, self._spool, self._output_limit_bytes, task_files)
        if self._closed or refusal:
            attempt.end(Outcome.GIVEN_BACK, self._closed or refusal)
        elif run.row_file:
            attempt.end(Outcome.FAILED, "its parameters are lost: the master no longer has the job's row file")
        self._attempts[run.attempt] = attempt
        self._crew.start(self._see_through(attempt, folder))
        if self._looking is None:
            self._look_around()

    def cancel(self, attempt: AttemptId) -> None:
        if attempt in self._attempts:
            self._attempts[attempt].end(Outcome.CANCELLED)

    def give_back(self, attempt: AttemptId, reason: str) -> None:
        """Kill it; the task is queued again, and no retry is burnt."""
        if attempt in self._attempts:
            self._attempts[attempt].end(Outcome.GIVEN_BACK, reason)

    def freeze(self, attempt: AttemptId) -> bool:
        """Have it stand still, until it is thawed or ended; whether it already does."""
        if attempt not in self._attempts:
            return True
        self._attempts[attempt].freeze()
        return self._attempts[attempt].is_still()

    def thaw(self, attempt: AttemptId) -> None:
        if attempt in self._attempts:
            self._attempts[attempt].thaw()

    async def read(self, attempt: AttemptId, stream: Stream, offset: int, most_bytes: int) -> bytes:
        """What it wrote from this byte on, as soon as there is any; empty: it will write no more, or is not here."""
        if attempt not in self._attempts:
            return b""
        return await self._attempts[attempt].read(stream, offset, most_bytes)

    def in_hand(self) -> list[tuple[str, Held]]:
        """The job's name and the state of every attempt, the oldest first."""
        return [(attempt.job_name, attempt.held) for attempt in self._attempts.values()]

    def held(self, attempt: AttemptId) -> Held:
        return self._attempts[attempt].held if attempt in self._attempts else Held(attempt)

    @property
    def slots_in_use(self) -> int:
        return sum(attempt.slots for attempt in self._attempts.values())

    def measure(self) -> float:
        """Measure what runs; CPU seconds that all attempts have taken since the beginning."""
        for attempt in self._attempts.values():
            attempt.measure()
        return self._past_cpu_s + sum(attempt.usage.cpu_s for attempt in self._attempts.values())

    async def close(self, reason: str) -> None:
        """Give back all that runs, and all that may still come; until every result is handed over."""
        self._closed = reason
        for attempt in self._attempts.values():
            attempt.end(Outcome.GIVEN_BACK, reason)
        while self._attempts:
            self._none_left.clear()
            await self._none_left.wait()

    def _look_around(self) -> None:
        """After limits that are broken, as long as anything is in hand."""
        now = time.monotonic()
        for attempt in list(self._attempts.values()):
            attempt.look(now)
        self._looking = None
        if self._attempts:
            self._looking = asyncio.get_running_loop().call_later(LOOK_AROUND_S, self._look_around)

    async def _see_through(self, attempt: Attempt, folder: Path) -> None:
        result = await attempt.execute()
        try:
            await attempt.clear_up()
        except OSError as error:
            log.warning("cannot clear up after %s: %s", attempt.id, error)
        if attempt.folder_is_left:
            await asyncio.gather(asyncio.to_thread(scratch.remove, folder), self._on_end(result, attempt.trouble))
        else:
            await self._on_end(result, attempt.trouble)
        self._past_cpu_s += attempt.spent_cpu_s
        del self._attempts[attempt.id]
        if not self._attempts:
            self._none_left.set()
