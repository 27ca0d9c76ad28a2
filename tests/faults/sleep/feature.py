"""Computers that sleep and are woken, in every state of their workers and their master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from unittest.mock import patch

from loopline_master.core.wings.power import wakes
from loopline_shared.errors import LooplineError
from loopline_shared.job.requirements import Requirements
from tests.faults import jobs
from tests.faults.bugs import SOON_S
from tests.faults.driver import WORKERS, Campaign, Fault, Feature
from tests.faults.jobs import Drawn
from tests.faults.sleep.computers import Computer, computers
from tests.live.grid import wait_for

COMPUTERS: dict[int, dict[str, Computer]] = {}
"""The computers by worker, by the seed of their campaign."""
LONG_S = 12.0
"""The owner wakes a computer after this time if the grid does not."""
POLL_S = 0.2


def computer_of(campaign: Campaign, worker: str) -> Computer:
    return COMPUTERS[campaign.seed][worker]


@asynccontextmanager
async def asleep(campaign: Campaign, worker: str) -> AsyncIterator[Computer]:
    """Suspend the computer of a worker, and resume it."""
    computer = computer_of(campaign, worker)
    await computer.suspend(campaign.grid.workers[worker].pid)
    try:
        yield computer
    finally:
        await computer.resume()


async def suspend(campaign: Campaign, worker: str) -> None:
    """Suspend it for less or more than its tasks may sleep with it."""
    async with asleep(campaign, worker):
        await asyncio.sleep(campaign.chance.choice((0.0, 0.3, 1.0, 5.0)))  # the fault lasts


async def sleep_until_woken(campaign: Campaign, worker: str) -> bool:
    """Suspend it, and submit work that only it can do. Return True if the grid has woken it."""
    async with asleep(campaign, worker) as computer:
        await submit_for(campaign, worker)
        return await is_woken(campaign, computer)


async def fail_to_wake(campaign: Campaign, worker: str) -> bool:
    """Suspend it, and ignore all magic packets until the grid has given it up at least once."""

    async def has_failed() -> bool:
        view = await campaign.client.worker(worker)
        return view.sleep is not None and view.sleep.failed_wakes > 0

    async with asleep(campaign, worker):
        await submit_for(campaign, worker)
        try:
            await wait_for(f"a wake of {worker} to fail", has_failed, LONG_S)
        except AssertionError:
            return False
        return True


async def wake_by_hand(campaign: Campaign, worker: str) -> bool:
    """Suspend it, and have an operator wake it. It may have been noticed as away, not as asleep."""
    async with asleep(campaign, worker) as computer:
        with suppress(LooplineError):
            await campaign.client.wake(worker)
        return await is_woken(campaign, computer)


async def call_off(campaign: Campaign, worker: str) -> None:
    """Announce a sleep, and call it off before or after the worker is ready for it."""
    computer = computer_of(campaign, worker)
    await computer.announce("PrepareForSleep", True)
    if campaign.chance.random() < 0.5:
        await computer.until_released()
    await computer.announce("PrepareForSleep", False)


async def switch_off(campaign: Campaign, worker: str) -> None:
    computer = computer_of(campaign, worker)
    await computer.announce("PrepareForShutdown", True)
    await computer.until_released()
    await campaign.grid.stop_worker(worker)
    await asyncio.sleep(campaign.chance.choice((0.0, 3.0)))  # the fault lasts
    await campaign.start_worker(worker)


async def kill_before_sleep(campaign: Campaign, worker: str) -> bool:
    """Kill the agent while it says good-bye."""
    if not await campaign.may_kill_agent(worker):
        return False
    await computer_of(campaign, worker).announce("PrepareForSleep", True)
    await campaign.grid.kill_worker(worker)
    await campaign.start_worker(worker)
    return True


async def sleep_without_cable(campaign: Campaign, worker: str) -> None:
    """Suspend it while no data comes through: the master does not get the good-bye."""
    for cable in campaign.cables[worker]:
        cable.fall_silent()
    async with asleep(campaign, worker):
        await asyncio.sleep(campaign.chance.choice((0.3, 4.5)))  # the fault lasts
        for cable in campaign.cables[worker]:
            cable.mend()


async def kill_master_during_sleep(campaign: Campaign, worker: str) -> bool:
    """Kill the master while a computer sleeps, which wakes before or after the master serves again."""
    if "master" in campaign.busy or not campaign.targets["master"]:
        return False
    campaign.busy.add("master")
    try:
        async with asleep(campaign, worker):
            await campaign.grid.kill_master()
            if campaign.chance.random() < 0.5:
                await campaign.start_master()
        assert campaign.grid.master
        if campaign.grid.master.returncode is not None:
            await campaign.start_master()
    finally:
        campaign.busy.discard("master")
    return True


async def submit_for(campaign: Campaign, worker: str) -> None:
    name, chance = f"job-for-{worker}-{len(campaign.jobs)}", campaign.chance
    tasks = chance.randint(1, 4)
    spec = jobs.job(name, f"sleep 0.1; echo {name} {{i}}", tasks, chance, requires=Requirements(labels=[worker]))
    await campaign.submit(Drawn(spec, tasks, lambda i: f"{name} {i}\n"))


async def is_woken(campaign: Campaign, computer: Computer) -> bool:
    """Wait for a magic packet. Return False if none has come when the owner comes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LONG_S):
            await computer.heard.wait()
            campaign.say(f"{computer.name} is woken")
    return computer.heard.is_set()


async def follow(campaign: Campaign, computer: Computer) -> None:
    """Suspend the computer when its worker asks for it; call the sleep off while another fault is under way."""
    while True:
        await asyncio.sleep(POLL_S)  # polls
        if not await computer.is_suspend_requested():
            continue
        if computer.name in campaign.busy:
            await call_off(campaign, computer.name)
            continue
        campaign.busy.add(computer.name)
        campaign.say(f"{computer.name} is suspended by its worker")
        try:
            async with asleep(campaign, computer.name):
                await is_woken(campaign, computer)
        finally:
            campaign.busy.discard(computer.name)


@asynccontextmanager
async def sleepers(campaign: Campaign) -> AsyncIterator[None]:
    """Give each worker a computer that can sleep; at the end all of them must be awake and connected."""
    # The replay of the log, which is checked in this process, gives wakes up like the master.
    with patch.object(wakes, "GIVE_UP_S", SOON_S):
        async with computers(WORKERS, campaign.folder) as found:
            COMPUTERS[campaign.seed] = found
            for name, computer in found.items():
                settings = {"DBUS_SYSTEM_BUS_ADDRESS": computer.bus_address, "PLANTED_CARD": computer.card}
                campaign.variables_of.setdefault(name, {}).update(settings)
            following = [asyncio.create_task(follow(campaign, computer)) for computer in found.values()]
            try:
                yield
            finally:
                for task in following:
                    task.cancel()  # its computer wakes up, and none is suspended any more
                await asyncio.gather(*following, return_exceptions=True)
            await wait_for("all computers to be awake", lambda: are_all_awake(campaign))


async def are_all_awake(campaign: Campaign) -> bool:
    views = [one async for one in campaign.client.workers() if one.name in WORKERS]
    awake = [one for one in views if one.connected and (one.sleep is None or one.sleep.since is None)]
    return len(awake) == len(WORKERS)


SLEEP = Feature(
    "sleep",
    faults=(
        Fault("suspend", suspend),
        Fault("sleep until woken for work", sleep_until_woken),
        Fault("failed wake", fail_to_wake),
        Fault("wake by hand", wake_by_hand),
        Fault("sleep called off", call_off),
        Fault("switched off", switch_off),
        Fault("kill -9 of an agent that says good-bye", kill_before_sleep),
        Fault("suspend with a cut cable", sleep_without_cable),
        Fault("kill -9 of the master during a sleep", kill_master_during_sleep),
    ),
    bugs={"a_sleeper_is_not_written": "replay", "a_worker_does_not_come_back": "in vain"},
    master=("--sleep-keep-s", "3", "--sleep-after-s", "1", "--wake-at-once", "1000"),
    strange={"master": "wakes_are_given_up_soon"} | dict.fromkeys(WORKERS, "the_loopback_is_a_card"),
    around=sleepers,
)
