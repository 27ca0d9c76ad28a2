"""Commands that list and steer workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

import loopline
from loopline.cli.common import PLAIN, Common, some
from loopline.cli.render import knowledge, tables
from loopline_shared.rest import bodies

_WAIT_S = 0.5


async def workers(*, long: bool = False, outdated: bool = False, gpus: bool = False, common: Common = PLAIN) -> None:
    """List the workers: their slots, their spare CPU and memory, when they were last seen.

    Parameters
    ----------
    long
        Show what is known of them instead: speed, queue, network, use in the last hour, health.
    outdated
        List only those that run another release than the master.
    gpus
        List their GPUs instead: model, memory, and the task that has each.
    """
    async with common.client() as client:
        items = await some(0, client.workers(last_hour=long))
        if outdated:
            release = (await client.whoami()).version
            items = [item for item in items if item.facts.agent != release]
            common.show([_document(item) for item in items], lambda: tables.outdated(items, release))
            return
    draw = tables.gpus if gpus else knowledge.workers if long else tables.workers
    common.show([_document(item) for item in items], lambda: draw(items))


async def drain(
    worker: str,
    /,
    *others: str,
    reason: str = "",
    now: Annotated[bool, Parameter(negative=())] = False,
    wait: Annotated[bool, Parameter(negative=())] = False,
    common: Common = PLAIN,
) -> None:
    """Start nothing more on a worker; running tasks finish, waiting ones are reassigned.

    Parameters
    ----------
    worker
        Name of the worker.
    others
        Names of more workers.
    reason
        Why, in one line: users see it at the worker.
    now
        End the running tasks, which get SIGTERM first; they are queued again. Tasks on several nodes finish.
    wait
        Return once nothing runs there any more, or once it is away.
    """
    async with common.client() as client:
        views = [await client.drain(name, reason, now=now) for name in (worker, *others)]
        if wait:
            views = [await _emptied(client, view) for view in views]
    _show(views, common)


async def undrain(worker: str, /, *others: str, common: Common = PLAIN) -> None:
    """Let a drained worker run tasks again.

    Parameters
    ----------
    worker
        Name of the worker.
    others
        Names of more workers.
    """
    async with common.client() as client:
        views = [await client.undrain(name) for name in (worker, *others)]
    _show(views, common)


async def _emptied(client: loopline.AsyncClient, view: bodies.WorkerView) -> bodies.WorkerView:
    """Return the worker once nothing runs or waits there, or once it is away."""
    while view.connected and (view.running or view.waiting):
        await asyncio.sleep(_WAIT_S)
        view = await client.worker(view.name)
    return view


def _document(worker: bodies.WorkerView) -> dict[str, Any]:
    """Return a worker as JSON."""
    return worker.model_dump(mode="json")


def _show(workers: Sequence[bodies.WorkerView], common: Common) -> None:
    """Show what was asked of workers; as JSON, one worker is a document, several are a list."""
    documents = [_document(worker) for worker in workers]
    common.show(
        documents if len(documents) > 1 else documents[0], lambda: Text("\n".join(_line(one) for one in workers))
    )


def _line(worker: bodies.WorkerView) -> str:
    state = f"{tables.worker_state(worker).plain}, " if worker.draining else ""
    doing = f"{worker.slots_used} running" if worker.slots_used else "nothing running"
    return f"worker {worker.name}: {state}{doing}"
