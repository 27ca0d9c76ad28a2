"""Files that the rows of a job name: where they are, and the error that says when they were removed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from loopline_master.core.kernel.entities import Job
from loopline_master.files.blobs import Blobs
from loopline_master.files.whole_files import WholeFiles
from loopline_master.store import Store
from loopline_master.store.history.forgotten_jobs import FORGOTTEN
from loopline_shared.errors import LooplineError
from loopline_shared.spec import named_files


class RetainedFiles:
    """Finds the files of jobs, as far as retention has not removed them."""

    def __init__(self, store: Store, blobs: Blobs, whole: WholeFiles, failed_outputs_days: float | None) -> None:
        self._store, self._blobs, self._whole = store, blobs, whole
        self._failed_outputs_days = failed_outputs_days

    async def path(self, job: int, sha256: str) -> Path:
        """Return the place of one file of a job. Raises LooplineError if it was removed, or is damaged."""
        path = await self._whole.find(sha256)
        if path is not None:
            return path
        days = self._failed_outputs_days
        if days is not None and await self._store.files.is_left(job, sha256):
            message = f"outputs of failed tasks are kept for {days:g} days (failed_outputs_days): these are gone"
            raise LooplineError("removed", message, f"`loopline retry {job}` runs its failed tasks again", status=410)
        raise await self._removed(job, f"there is no file {sha256} any more")

    async def retain_for_retry(self, job: Job) -> None:
        """Protect the inputs and results of an ended job that is about to run again.

        Raises LooplineError if any of them was removed: the job would then succeed without its results. Retention
        deletes no file of a job that is in the grid. The caller must hold ``Retention.releasing`` until the job is.
        """
        names = [*named_files(job.spec), *([job.inputs] if job.inputs else [])]
        removal = await self._store.files.removal(job.id)
        if removal is not None:
            if removal.reason == FORGOTTEN or names or await self._store.files.name_any(job.id):
                raise await self._removed(job.id, "")
            await self._store.files.retain_again(job.id)
        if not await asyncio.to_thread(lambda: all(self._blobs.retain(name) is not None for name in names)):
            raise await self._removed(job.id, f"input files of job {job.id} are not there any more")

    async def _removed(self, job: int, message: str) -> LooplineError:
        removal = await self._store.files.removal(job)
        if removal is None:
            return LooplineError("not_found", message, status=404)
        day = time.strftime("%Y-%m-%d", time.gmtime(removal.at))
        reason = f"the files of job {job} were removed on {day} ({removal.reason})"
        return LooplineError("removed", reason, "submit it again if you need them", status=410)
