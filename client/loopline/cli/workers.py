"""Commands that list and steer workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

import loopline
from loopline.cli.common import PLAIN, Common, some
from loopline.cli.render import knowledge, tables
from loopline_shared.errors import LooplineError
from loopline_shared.rest import bodies

_WAIT_S = 0.5
_SUSPENDS_WITHIN_S, _TESTED_WITHIN_S = 30.0, 360.0
_CHECKLIST = "the manual lists the usual causes: nights.md"


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


async def wake(
    worker: str,
    /,
    *others: str,
    test: Annotated[bool, Parameter(negative=())] = False,
    wait: Annotated[bool, Parameter(negative=())] = False,
    common: Common = PLAIN,
) -> None:
    """Wake the computers of workers that are asleep.

    Parameters
    ----------
    worker
        Name of the worker.
    others
        Names of more workers.
    test
        Find out whether computers can be woken: suspend each, which must be idle, and wake it. If that fails, its own
        clock wakes it after 4 minutes. Fail if it does not come within 6 minutes.
    wait
        Return once they have connected; fail if one does not come within 5 minutes.
    """
    async with common.client() as client:
        views = [await client.wake(name, test=test) for name in (worker, *others)]
        if test:
            views = [await _tested(client, view) for view in views]
        elif wait:
            views = [await _awake(client, view) for view in views]
    _show(views, common)


async def _tested(client: loopline.AsyncClient, view: bodies.WorkerView) -> bodies.WorkerView:
    """Return the worker once a test has shown that its computer can be woken. Raises LooplineError."""
    woken_before, failed_before = view.sleep and view.sleep.last_wake_at, _failed_wakes(view)
    give_up_at = time.monotonic() + _SUSPENDS_WITHIN_S
    while not (view.sleep and view.sleep.since is not None):
        if time.monotonic() > give_up_at:
            hint = (
                "see that worker's log; `sudo loopline service install --system` permits it to suspend its computer"
            )
            raise LooplineError("no_suspend", f"{view.name} did not go to sleep", hint)
        await asyncio.sleep(_WAIT_S)
        view = await client.worker(view.name)
    give_up_at = time.monotonic() + _TESTED_WITHIN_S
    while not view.connected:
        if time.monotonic() > give_up_at:
            message = f"neither magic packets nor its own clock woke {view.name} within 6 minutes"
            raise LooplineError(
                "wake_failed", message, "start it by hand; the manual lists the usual causes: nights.md"
            )
        await asyncio.sleep(_WAIT_S)
        view = await client.worker(view.name)
    if view.sleep and view.sleep.last_wake_at == woken_before:
        message = f"{view.name} came back before it was woken: somebody may have started it"
        raise LooplineError("not_tested", message, "test it again when nobody uses it")
    if _failed_wakes(view) > failed_before:
        message = f"no magic packet woke {view.name}: it came when its own clock woke it"
        raise LooplineError("wake_failed", message, _CHECKLIST)
    return view


async def _awake(client: loopline.AsyncClient, view: bodies.WorkerView) -> bodies.WorkerView:
    """Return the worker once it has connected. Raises LooplineError if its wake has failed."""
    failed_before = _failed_wakes(view)
    while not view.connected:
        if _failed_wakes(view) > failed_before:
            raise LooplineError("wake_failed", f"{view.name} did not wake within 5 minutes", _CHECKLIST)
        await asyncio.sleep(_WAIT_S)
        view = await client.worker(view.name)
    return view


def _failed_wakes(view: bodies.WorkerView) -> int:
    return view.sleep.failed_wakes if view.sleep else 0


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
    if worker.sleep and worker.sleep.wake_sent_at is not None:
        return f"worker {worker.name}: it is being woken"
    if worker.sleep and worker.sleep.can_be_woken:
        state += "it can be woken, "
    doing = f"{worker.slots_used} running" if worker.slots_used else "nothing running"
    return f"worker {worker.name}: {state}{doing}"
