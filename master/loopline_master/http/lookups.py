"""Lookups that answer 404 if they find nothing."""

from __future__ import annotations

from typing import TypeVar

from loopline_master.store import Store
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import JobView

Thing = TypeVar("Thing")


def found(thing: Thing | None, what: str) -> Thing:
    """Return the thing. Raises LooplineError if it is None: there is no ``what``."""
    if thing is None:
        raise LooplineError("not_found", f"there is no {what}", status=404)
    return thing


async def job_view(store: Store, job: int) -> JobView:
    """Return a job as it is stored. Raises LooplineError if there is no such job."""
    return found(await store.jobs.view(job), f"job {job}")
