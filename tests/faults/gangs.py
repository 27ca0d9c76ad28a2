"""Tasks on several workers at once: all members start or none, and a gang without a member is halted."""

from __future__ import annotations

import asyncio
import signal
import sys

import psutil

from loopline_shared.model import AttemptState
from loopline_shared.spec import JobSpec
from tests.faults.driver import WORKERS, Campaign, Fault, Feature
from tests.faults.jobs import SIZES, Drawn
from tests.faults.plain import kill_one
from tests.live.grid import wait_for
from tests.live.test_gangs import MEET

LEASE_S, ORDERED_WITHIN_S, LOOKS_ON_S = 8.0, 4.0, 1.5
"""The observation is shorter than the lease, so a suspended worker is not lost during it."""


async def meets(campaign: Campaign, name: str) -> Drawn:
    """Draw a gang whose members meet before they end."""
    return _gang(campaign, name, campaign.drawing.choice((2, 2, len(WORKERS))))


def _gang(campaign: Campaign, name: str, nodes: int) -> Drawn:
    size, pause = campaign.drawing.choice(SIZES), campaign.drawing.choice((0.0, 0.5, 1.5))
    spec = JobSpec(
        name=name,
        command=[sys.executable, "-c", f"{MEET}\ntime.sleep({pause})"],
        nodes=nodes,
        size=size,
        max_attempts=20,
    )
    others = " ".join(str(rank) for rank in range(1, nodes))
    return Drawn(spec, 1, lambda _: f"met {others}\n")


async def kill_member(campaign: Campaign, worker: str) -> bool:
    members = [one for rank in range(len(WORKERS)) for one in campaign.grid.processes(LOOPLINE_RANK=str(rank))]
    return kill_one(campaign, members)


async def prepare_without_one(campaign: Campaign, worker: str) -> bool:
    """Suspend a worker before its command arrives: no other member may start without it.

    False if it has no free slot.
    """
    drawn = _gang(campaign, f"gang-without-{worker}-{len(campaign.jobs)}", len(WORKERS))
    agent = psutil.Process(campaign.grid.workers[worker].pid)
    agent.send_signal(signal.SIGSTOP)
    try:
        await campaign.submit(drawn)
        await wait_for("its order", lambda: _is_ordered(campaign, drawn.id, worker), ORDERED_WITHIN_S)
        await asyncio.sleep(LOOKS_ON_S)  # the fault lasts
        if begun := campaign.grid.processes(LOOPLINE_JOB=str(drawn.id)):
            campaign.found(f"gang {drawn.id} began without its member on {worker}: process {begun[0].pid}")
        return True
    except AssertionError:
        return False
    finally:
        agent.send_signal(signal.SIGCONT)


async def _is_ordered(campaign: Campaign, job: int, worker: str) -> bool:
    """Return whether the latest member of a gang on this worker is not ready yet."""
    there = [one async for one in campaign.client.attempts(job) if one.worker == worker]
    return bool(there) and there[-1].state is AttemptState.DISPATCHED


GANGS = Feature(
    "gangs",
    faults=(
        Fault("kill -9 of a gang's member", kill_member),
        Fault("a gang prepared without one of its workers", prepare_without_one),
    ),
    bugs={"a_gang_begins_without_a_member": "began without", "a_gang_succeeds_by_its_first_member": "brought"},
    master=("--gang-grace-s", "2", "--gang-prepare-s", "10", "--lease-s", str(LEASE_S)),
    jobs=(meets, meets),
)
