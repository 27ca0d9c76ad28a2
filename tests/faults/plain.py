"""A plain grid: daemons are killed and suspended, cables are cut, tasks and supervisors are killed."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

import psutil

from tests.faults.driver import Campaign, Fault, Feature


async def kill_master(campaign: Campaign, _: str) -> None:
    await campaign.grid.kill_master()
    await campaign.start_master()


async def stop_master(campaign: Campaign, _: str) -> None:
    assert campaign.grid.master
    await stand_still(campaign, campaign.grid.master.pid)


async def kill_agent(campaign: Campaign, worker: str) -> bool:
    """Kill an agent; it restarts at once, or only after its lease."""
    if not await campaign.may_kill_agent(worker):
        return False
    await campaign.grid.kill_worker(worker)
    await asyncio.sleep(campaign.chance.choice((0.0, 0.0, 3.0)))  # the fault lasts
    await campaign.start_worker(worker)
    return True


async def end_agent(campaign: Campaign, worker: str) -> None:
    await campaign.grid.stop_worker(worker)
    await campaign.start_worker(worker)


async def stop_agent(campaign: Campaign, worker: str) -> None:
    await stand_still(campaign, campaign.grid.workers[worker].pid)


async def stand_still(campaign: Campaign, pid: int) -> None:
    """Suspend a process for less or more than a lease; its tasks then run elsewhere, but may also end here."""
    psutil.Process(pid).send_signal(signal.SIGSTOP)
    await asyncio.sleep(campaign.chance.choice((0.3, 1.0, 4.5)))  # the fault lasts
    psutil.Process(pid).send_signal(signal.SIGCONT)


async def kill_zygote(campaign: Campaign, worker: str) -> bool:
    return kill_one(campaign, zygotes(campaign, worker))


async def kill_supervisor(campaign: Campaign, worker: str) -> bool:
    return kill_one(campaign, [one for zygote in zygotes(campaign, worker) for one in children(zygote)])


async def kill_task(campaign: Campaign, worker: str) -> bool:
    return kill_one(campaign, campaign.grid.processes(LOOPLINE_WORKER=worker))


async def hang_up(campaign: Campaign, worker: str) -> None:
    for cable in campaign.cables[worker]:
        cable.hang_up()


async def cut_cable(campaign: Campaign, worker: str) -> None:
    """Drop all data for a while; both ends see working connections."""
    for cable in campaign.cables[worker]:
        cable.fall_silent()
    await asyncio.sleep(campaign.chance.choice((0.5, 4.5)))  # the fault lasts
    for cable in campaign.cables[worker]:
        cable.mend()


def kill_one(campaign: Campaign, processes: list[psutil.Process]) -> bool:
    """Kill one of these processes. Return False if there is none."""
    with suppress(psutil.NoSuchProcess):
        if processes:
            campaign.chance.choice(processes).kill()
            return True
    return False


def zygotes(campaign: Campaign, worker: str) -> list[psutil.Process]:
    return children(psutil.Process(campaign.grid.workers[worker].pid))


def children(parent: psutil.Process) -> list[psutil.Process]:
    """Return the children of a process that run the zygote's program: the zygote, or its forked supervisors."""
    found = list[psutil.Process]()
    with suppress(psutil.NoSuchProcess):
        for child in parent.children():
            with suppress(psutil.Error):
                if any("zygote" in word for word in child.cmdline()):
                    found.append(child)
    return found


PLAIN = Feature(
    "plain",
    faults=(
        Fault("kill -9 of the master", kill_master, "master"),
        Fault("SIGSTOP of the master", stop_master, "master"),
        Fault("kill -9 of an agent", kill_agent),
        Fault("SIGTERM of an agent", end_agent),
        Fault("SIGSTOP of an agent", stop_agent),
        Fault("kill -9 of a zygote", kill_zygote),
        Fault("kill -9 of a supervisor", kill_supervisor),
        Fault("kill -9 of a task", kill_task),
        Fault("connection cut", hang_up),
        Fault("cable cut", cut_cable),
    ),
    bugs={
        "losers_are_not_killed": "left running",
        "a_second_result_is_accepted": "accepted twice",
        "the_hold_is_ignored": "passed job",
        "the_master_speaks_before_it_has_committed": "acknowledged",
    },
)
