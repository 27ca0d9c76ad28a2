"""Commands that list and steer workers."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from loopline.cli.common import PLAIN, Common, some
from loopline.cli.render import knowledge, tables
from loopline_shared.rest.bodies import WorkerView


async def workers(*, long: bool = False, common: Common = PLAIN) -> None:
    """List the workers: their slots, their spare CPU and memory, when they were last seen.

    Parameters
    ----------
    long
        Show what is known of them instead: speed, queue, network, the last hour against what was promised, health.
    """
    async with common.client() as client:
        items = await some(0, client.workers(last_hour=long))
    common.show(
        [_document(item) for item in items], lambda: knowledge.workers(items) if long else tables.workers(items)
    )


async def drain(worker: str, /, *, common: Common = PLAIN) -> None:
    """Start nothing more on a worker; running tasks finish, queued ones are reassigned.

    Parameters
    ----------
    worker
        Name of the worker.
    """
    async with common.client() as client:
        view = await client.drain(worker)
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
    """Return a worker as JSON, with its health also under the name that tables use."""
    return {**worker.model_dump(mode="json"), "health": worker.standing}


def _show(worker: WorkerView, common: Common) -> None:
    doing = f"{worker.slots_used} running" if worker.slots_used else "nothing running"
    common.show(
        _document(worker), lambda: Text(f"worker {worker.name}: {'draining, ' if worker.draining else ''}{doing}")
    )
