"""Files that a job's rows name, and what is said where they are not kept any more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from loopline_master.core.entities import Job
from loopline_master.http.services import Services
from loopline_shared.errors import LooplineError
from loopline_shared.spec import named_files


async def kept(services: Services, job: int, sha256: str) -> Path:
    """Where a file of a job is; LooplineError where it is not kept any more."""
    path = services.blobs.find(sha256)
    if path is None:
        raise await _gone(services, job, f"there is no file {sha256} any more")
    return path


async def keep_for_retry(services: Services, job: Job) -> None:
    """See that all is there that the job's tasks take and have left, and that it stays; LooplineError if it is not.

    Once its files were let go they may be gone, or go any moment: with them it would succeed without its results.
    While the job is in the grid they are kept. To be called, and gone on from, where nobody lets files go.
    """
    names = [*named_files(job.spec), *([job.inputs] if job.inputs else [])]
    if await services.store.files.removal(job.id) is not None:
        if names or await services.store.files.are_named(job.id):
            raise await _gone(services, job.id, "")
        await services.store.files.take_up(job.id)
    if not await asyncio.to_thread(lambda: all(services.blobs.keep(name) is not None for name in names)):
        raise await _gone(services, job.id, f"input files of job {job.id} are not there any more")


async def _gone(services: Services, job: int, message: str) -> LooplineError:
    removal = await services.store.files.removal(job)
    if removal is None:
        return LooplineError("not_found", message, status=404)
    day = time.strftime("%Y-%m-%d", time.gmtime(removal.at))
    reason = f"the files of job {job} were removed on {day} ({removal.reason})"
    return LooplineError("removed", reason, "submit it again if you need them", status=410)
