"""Commands that list and steer workers."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common, some
from loopline.cli.render import knowledge, tables
from loopline_shared.rest.bodies import WorkerView
from loopline_shared.rest.times import SECONDS

_WAIT_S = 0.5


async def workers(*, long: bool = False, outdated: bool = False, common: Common = PLAIN) -> None:
    """List the workers: their slots, their spare CPU and memory, when they were last seen.

    Parameters
    ----------
    long
        Show what is known of them instead: speed, queue, network, the last hour against what was promised, health.
    outdated
        List only those that run another release than the master.
    """
    async with common.client() as client:
        items = await some(0, client.workers(last_hour=long))
        if outdated:
            release = (await client.whoami()).version
            items = [item for item in items if item.facts.agent != release]
            common.show([_document(item) for item in items], lambda: tables.outdated(items, release))
            return
    common.show(
        [_document(item) for item in items], lambda: knowledge.workers(items) if long else tables.workers(items)
    )


async def drain(
    worker: str, /, *, wait: Annotated[bool, Parameter(negative=())] = False, common: Common = PLAIN
) -> None:
    """Start nothing more on a worker; running tasks finish, queued ones are reassigned.

    Parameters
    ----------
    worker
        Name of the worker.
    wait
        Return once nothing runs there any more, or once it is away.
    """
    async with common.client() as client:
        view = await client.drain(worker)
        while wait and view.connected and (view.running or view.waiting):
            await asyncio.sleep(_WAIT_S)
            view = await client.worker(worker)
    _show(view, common)


async def undrain(worker: str, /, *, common: Common = PLAIN) -> None:
    """Let a drained worker run tasks again.

    Parameters
    ----------
    worker
        Name of the worker.
    """
    async with common.client() as client:
        view = await client.undrain(worker)
    _show(view, common)


def _document(worker: WorkerView) -> dict[str, Any]:
    """Return a worker as JSON."""
    return worker.model_dump(mode="json", context=SECONDS)


def _show(worker: WorkerView, common: Common) -> None:
    doing = f"{worker.slots_used} running" if worker.slots_used else "nothing running"
    common.show(
        _document(worker), lambda: Text(f"worker {worker.name}: {'draining, ' if worker.draining else ''}{doing}")
    )
