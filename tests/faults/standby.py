"""Two masters, each the standby of the other: one takes over, and the old one must not answer any more."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loopline.client import AsyncClient
from tests.faults.driver import Campaign, Fault, Feature
from tests.live.test_standby import Twins, said
from tests.store.postgres import Server, restartable_postgres

PAIR = "pair"
SILENT = (b"", b"HTTP/1.1 503 Service Unavailable")


class Pair(Twins):
    """The two masters of a campaign; ``active`` is the number of the serving one."""

    def __init__(self, campaign: Campaign, server: Server) -> None:
        super().__init__(campaign.grid, server)
        self._flags += campaign.master_options
        self.active = 0

    async def begin_both(self) -> AsyncClient:
        for number in range(2):
            self.masters.append(await self.start(number))
            await (self.until_waiting(1) if number else self.until_served(0))
        client = self.client(0, 1)
        self._grid._clients.append(client)
        return client

    async def take_over(self) -> int:
        """Wait until the standby serves; return the number of the previous master."""
        old, self.active = self.active, 1 - self.active
        await self.until_served(self.active)
        return old

    async def begin_again(self, number: int) -> None:
        await self.masters[number].wait()
        self.masters[number] = await self.start(number)
        await self.until_waiting(number)


PAIRS: dict[int, Pair] = {}
"""The pairs, by the seed of their campaign."""


async def kill_active(campaign: Campaign, _: str) -> None:
    pair = PAIRS[campaign.seed]
    pair.masters[pair.active].kill()
    await pair.begin_again(await pair.take_over())


async def stop_active(campaign: Campaign, _: str) -> None:
    """Resume the old master with a request waiting, once the other serves: it must not answer from its memory."""
    pair = PAIRS[campaign.seed]
    pair.masters[pair.active].send_signal(signal.SIGSTOP)
    old = await pair.take_over()
    pair.job = campaign.jobs[0].id
    asked = pair.asked(old)
    pair.masters[old].send_signal(signal.SIGCONT)
    if (answer := await asyncio.to_thread(said, asked)) not in SILENT:
        campaign.found(f"the old master spoke after the other had taken over: {answer!r}")
    await pair.until_waiting(old)


async def kill_waiting(campaign: Campaign, _: str) -> None:
    pair = PAIRS[campaign.seed]
    pair.masters[1 - pair.active].kill()
    await pair.begin_again(1 - pair.active)


@asynccontextmanager
async def two_masters(campaign: Campaign) -> AsyncIterator[None]:
    """Start PostgreSQL, and begin the campaign with both masters."""
    with restartable_postgres() as server:
        await asyncio.to_thread(server.start)
        pair = PAIRS[campaign.seed] = Pair(campaign, server)
        campaign.database, campaign.begin = f"{server.url}/postgres", pair.begin_both
        campaign.ports = [pair.address(number)[1] for number in range(2)]
        campaign.targets |= {"master": [], PAIR: [PAIR]}
        try:
            yield
        finally:
            for master in pair.masters:
                master.kill()
                await master.wait()


STANDBY = Feature(
    "standby",
    faults=(
        Fault("kill -9 of the master that serves", kill_active, PAIR),
        Fault("SIGSTOP of the master that serves", stop_active, PAIR),
        Fault("kill -9 of the standby", kill_waiting, PAIR),
    ),
    bugs={"an_old_master_speaks": "the old master spoke"},
    around=two_masters,
)
