"""Jobs that have ended and left the scheduler's memory: others may depend on them, and they may be retried.

What their rows say goes to the scheduler with the event that needs it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from loopline_master.core.events import CheckpointsRecalled, JobRetried, JobSubmitted
from loopline_master.core.kernel.effects import Done, Submitted
from loopline_master.core.kernel.requests import refused_retry
from loopline_master.engine import Engine
from loopline_master.files.retained import RetainedFiles
from loopline_master.files.retention import Retention
from loopline_master.store import Store
from loopline_master.submissions.idempotency import KeyLock
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, TaskState

RETRIES = "retries"
"""The key under which jobs are retried, one at a time: no other retry changes what one has read of ended jobs
before the step that takes it in."""
TRIES = 5
_UNSUCCESSFUL = (JobState.FAILED, JobState.CANCELLED)
Dependent = TypeVar("Dependent", JobSubmitted, JobRetried)


class Predecessors:
    """Asks the engine to take in jobs that depend on others."""

    def __init__(self, store: Store, engine: Engine, lock: KeyLock) -> None:
        self._store, self._engine, self._lock = store, engine, lock

    async def submit(self, event: JobSubmitted) -> Done | Submitted:
        """Submit a job whose predecessors may have ended.

        A predecessor that ended without success may be retried at any time: it is read under the lock of retries.
        """
        informed = await self._informed(event)
        if not any(state in _UNSUCCESSFUL for state in informed.ended.values()):
            try:
                return await self._engine.ask(informed)
            except LooplineError as error:
                if error.code != "changed_meanwhile":
                    raise
        return await self._lock.run(RETRIES, self.ask(event))

    async def ask(self, event: Dependent) -> Done | Submitted:
        """Read the predecessors and ask the engine; the caller holds the lock of retries.

        A predecessor that was running when it was read may end before the step: then it is read again.
        """
        for _ in range(TRIES - 1):
            try:
                return await self._engine.ask(await self._informed(event))
            except LooplineError as error:
                if error.code != "changed_meanwhile":
                    raise
        return await self._engine.ask(await self._informed(event))

    async def _informed(self, event: Dependent) -> Dependent:
        after = (event.spec if isinstance(event, JobSubmitted) else event.job.spec).after
        states = await self._store.jobs.states(after)
        unknown = sorted(set(after).difference(states))
        if unknown:
            message = f"it is to run after job {unknown[0]}, which does not exist"
            raise LooplineError("no_such_job", message, "loopline jobs lists the jobs", status=422)
        ended = {job: state for job, state in states.items() if state in (*_UNSUCCESSFUL, JobState.SUCCEEDED)}
        return replace(event, ended=ended)


class Retries:
    """Has jobs retried, one after the other."""

    def __init__(
        self, store: Store, engine: Engine, *, files: RetainedFiles, retention: Retention, lock: KeyLock
    ) -> None:
        self._store, self._engine = store, engine
        self._files, self._retention = files, retention
        self._lock = lock
        self._predecessors = Predecessors(store, engine, lock)

    async def retry(self, job: int, only: Collection[int] = (), *, from_start: bool = False) -> None:
        """Queue the unsuccessful tasks of an ended job again, or ``only`` these. Raises LooplineError if refused.

        ``from_start``: without the checkpoints that they have kept.
        """
        await self._lock.run(RETRIES, self._retry(job, only, from_start=from_start))

    async def _retry(self, job: int, only: Collection[int], *, from_start: bool) -> None:
        """Retry under the lock: the rows cannot change between reading them and the step that takes them in."""
        view = await self._store.jobs.view(job)
        refused = view and refused_retry(job, view.state)
        if refused:
            raise LooplineError(refused.code, refused.message, refused.hint, refused.status)
        event = await self._store.retry_material(job, only)
        if event is None:
            raise LooplineError("not_found", f"there is no job {job}", status=404)
        if only:
            _check_failed(event, only)
        async with self._retention.releasing:
            await self._files.retain_for_retry(event.job)
            if event.job.spec.checkpoint:
                kept = tuple(await self._store.kept_checkpoints(job, only))
                await self._engine.ask(CheckpointsRecalled(job, kept, is_dropped=from_start))
            await (self._predecessors.ask(event) if event.job.spec.after else self._engine.ask(event))


def _check_failed(event: JobRetried, only: Collection[int]) -> None:
    """Raises LooplineError unless all these tasks failed, of a job whose other tasks are over, too."""
    job = event.job
    if job.state is not JobState.FAILED:
        message = f"job {job.id} is {job.state}: tasks of it cannot be retried one by one"
        raise LooplineError("not_retriable", message, f"loopline retry {job.id} runs what is left of it", 409)
    if job.most_failed is not None and event.failed >= job.most_failed:
        message = f"{event.failed} other tasks of job {job.id} would stay failed, and it is to be stopped then"
        raise LooplineError("not_retriable", message, f"loopline retry {job.id} runs all of them", 409)
    failed = {task.number for task in event.tasks if task.state is TaskState.FAILED}
    if others := sorted(set(only) - failed):
        message = f"task {job.id}.{others[0]} has not failed"
        raise LooplineError(
            "not_failed", message, f"loopline tasks {job.id} --state failed lists those that have", 409
        )
