"""Retrying an ended job: what its rows say goes back to the scheduler, and its files stay."""

from __future__ import annotations

from collections.abc import Collection

from loopline_master.core.events import JobRetried
from loopline_master.core.requests import refused_retry
from loopline_master.engine import Engine
from loopline_master.files.retained import RetainedFiles
from loopline_master.files.retention import Retention
from loopline_master.store import Store
from loopline_master.submissions.key_lock import KeyLock
from loopline_master.submissions.predecessors import RETRIES, Predecessors
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, TaskState


class Retries:
    """Has jobs retried, one after the other."""

    def __init__(
        self, store: Store, engine: Engine, *, files: RetainedFiles, retention: Retention, lock: KeyLock
    ) -> None:
        self._store, self._engine = store, engine
        self._files, self._retention = files, retention
        self._lock = lock
        self._predecessors = Predecessors(store, engine, lock)

    async def retry(self, job: int, only: Collection[int] = ()) -> None:
        """Queue the unsuccessful tasks of an ended job again, or ``only`` these. Raises LooplineError if refused."""
        await self._lock.run(RETRIES, self._retry(job, only))

    async def _retry(self, job: int, only: Collection[int]) -> None:
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
