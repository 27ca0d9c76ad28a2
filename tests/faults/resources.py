"""Tasks that hold the only unit of a limit, or of their worker's resource: no two may hold it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loopline.client import AsyncClient
from loopline_shared.job.requirements import Requirements
from tests.faults import jobs
from tests.faults.driver import Campaign, Fault, Feature
from tests.faults.jobs import Drawn
from tests.faults.plain import kill_one
from tests.live.grid import wait_for

LIMIT, RESOURCE = "licence", "board"
UNITS = "units"
"""The target of faults that concern the limit."""
MARK = {"LOOPLINE_TEST": "holds a unit"}
HELD_S, SILENT_S = 20.0, 18.0
"""A silent worker's unit is handed on after its lease and ten seconds: tasks and silences last longer."""
BEGINS_WITHIN_S = 20.0


def _holder(
    campaign: Campaign, name: str, what: str, lock: str, tasks: int, pause_s: float, **options: object
) -> Drawn:
    """Return tasks that take a lock while they hold a unit: it is free if no other task holds that unit."""
    script = f'exec 9> "{campaign.folder}/{lock}.lock"; flock -n 9 || echo held twice; sleep {pause_s}; echo {{i}}'
    needs = Requirements(needs={what: 1})
    spec = jobs.job(name, script, tasks, campaign.drawing, requires=needs, **options)
    return Drawn(spec, tasks, lambda i: f"{i}\n")


async def holds_the_licence(campaign: Campaign, name: str) -> Drawn:
    chance = campaign.drawing
    pause_s = chance.choice((0.1, 0.3, 0.8))
    return _holder(campaign, name, LIMIT, LIMIT, chance.randint(1, 4), pause_s, environment=MARK)


async def holds_its_workers_board(campaign: Campaign, name: str) -> Drawn:
    chance = campaign.drawing
    pause_s = chance.choice((0.1, 0.3, 0.8))
    return _holder(campaign, name, RESOURCE, "$LOOPLINE_WORKER", chance.randint(2, 6), pause_s, environment=MARK)


async def silence_holder(campaign: Campaign, _: str) -> bool:
    """Cut the cable of the worker whose task holds the licence, until the licence was handed on."""
    drawn = _holder(campaign, f"job-silent-{len(campaign.jobs)}", LIMIT, LIMIT, 1, HELD_S)
    await campaign.submit(drawn)

    async def holder() -> str | None:
        running = [one async for one in campaign.client.attempts(drawn.id) if one.started_at and not one.ended_at]
        return running[0].worker if running else None

    try:
        worker = await wait_for("a task to hold the licence", holder, BEGINS_WITHIN_S)
    except AssertionError:
        return False
    for cable in campaign.cables[worker]:
        cable.fall_silent()
    await campaign.submit(await holds_the_licence(campaign, f"job-after-{len(campaign.jobs)}"))
    await asyncio.sleep(SILENT_S)  # the fault lasts
    for cable in campaign.cables[worker]:
        cable.mend()
    return True


async def set_limit_again(campaign: Campaign, _: str) -> None:
    await campaign.client.set_limit(LIMIT, 1)


async def kill_holder(campaign: Campaign, worker: str) -> bool:
    return kill_one(campaign, campaign.grid.processes(LOOPLINE_WORKER=worker, **MARK))


@asynccontextmanager
async def with_limit(campaign: Campaign) -> AsyncIterator[None]:
    """Set the limit as soon as a master serves."""
    begin = campaign.begin

    async def begin_with_limit() -> AsyncClient:
        client = await begin()
        await client.set_limit(LIMIT, 1)
        return client

    campaign.begin = begin_with_limit
    campaign.targets[UNITS] = [UNITS]
    yield


RESOURCES = Feature(
    "resources",
    faults=(
        Fault("silence of the worker whose task holds the licence", silence_holder, UNITS),
        Fault("limit set again", set_limit_again, UNITS),
        Fault("kill -9 of a task that holds a unit", kill_holder),
    ),
    bugs={"a_silent_holder_goes_on": "brought"},
    worker={"LOOPLINE_RESOURCES": f"{RESOURCE}=1"},
    jobs=(holds_the_licence, holds_its_workers_board),
    around=with_limit,
)
