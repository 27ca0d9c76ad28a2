"""Commands about the machines."""

from __future__ import annotations

from rich.text import Text

from loopline.cli.common import PLAIN, Common, some
from loopline.cli.render import knowledge, tables
from loopline_shared.rest.bodies import WorkerView


async def workers(*, long: bool = False, common: Common = PLAIN) -> None:
    """List the workers: their slots, what they leave over, when they were last heard of.

    Parameters
    ----------
    long
        What is known of them instead: speed, queue, network, the last hour against what was promised, standing.
    """
    async with common.client() as client:
        items = await some(0, client.workers(last_hour=long))
    common.show(items, lambda: knowledge.workers(items) if long else tables.workers(items))


async def drain(worker: str, /, *, common: Common = PLAIN) -> None:
    """Give a worker nothing more to do; what it runs, it finishes.

    Parameters
    ----------
    worker
        Its name.
    """
    async with common.client() as client:
        view = await client.drain(worker)
    _show(view, common)


async def undrain(worker: str, /, *, common: Common = PLAIN) -> None:
    """Give a drained worker work again.

    Parameters
    ----------
    worker
        Its name.
    """
    async with common.client() as client:
        view = await client.undrain(worker)
    _show(view, common)


def _show(worker: WorkerView, common: Common) -> None:
    doing = f"{worker.slots_used} running" if worker.slots_used else "nothing running"
    common.show(worker, lambda: Text(f"worker {worker.name}: {'draining, ' if worker.draining else ''}{doing}"))
