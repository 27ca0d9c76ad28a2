"""Retrying an ended job: what its rows say goes back to the scheduler, and its files stay."""

from __future__ import annotations

from loopline_master.core.requests import refused_retry
from loopline_master.engine import Engine
from loopline_master.files.retained import RetainedFiles
from loopline_master.files.retention import Retention
from loopline_master.store import Store
from loopline_master.submissions.key_lock import KeyLock
from loopline_master.submissions.predecessors import RETRIES, Predecessors
from loopline_shared.errors import LooplineError


class Retries:
    """Has jobs retried, one after the other."""

    def __init__(
        self, store: Store, engine: Engine, *, files: RetainedFiles, retention: Retention, lock: KeyLock
    ) -> None:
        self._store, self._engine = store, engine
        self._files, self._retention = files, retention
        self._lock = lock
        self._predecessors = Predecessors(store, engine, lock)

    async def retry(self, job: int) -> None:
        """Queue the unsuccessful tasks of an ended job again. Raises LooplineError if it is refused."""
        await self._lock.run(RETRIES, self._retry(job))

    async def _retry(self, job: int) -> None:
        """Retry under the lock: the rows cannot change between reading them and the step that takes them in."""
        view = await self._store.jobs.view(job)
        refused = view and refused_retry(job, view.state)
        if refused:
            raise LooplineError(refused.code, refused.message, refused.hint, refused.status)
        event = await self._store.retry_material(job)
        if event is None:
            raise LooplineError("not_found", f"there is no job {job}", status=404)
        async with self._retention.releasing:
            await self._files.retain_for_retry(event.job)
            await (self._predecessors.ask(event) if event.job.spec.after else self._engine.ask(event))
