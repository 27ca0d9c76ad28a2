"""A master on PostgreSQL, whose server restarts, hangs and drops connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.driver import Campaign, Fault, Feature
from tests.live import test_postgres
from tests.store.postgres import Server, restartable_postgres

SERVERS: dict[int, Server] = {}
"""The servers, by the seed of their campaign."""


async def restart_server(campaign: Campaign, _: str) -> None:
    server = SERVERS[campaign.seed]
    await asyncio.to_thread(server.end)
    await asyncio.sleep(campaign.chance.choice((0.0, 2.0)))  # the fault lasts
    await asyncio.to_thread(server.start)


async def hang_server(campaign: Campaign, _: str) -> None:
    await test_postgres.hang(SERVERS[campaign.seed])


async def cut_connections(campaign: Campaign, _: str) -> None:
    await test_postgres.cut_connections(SERVERS[campaign.seed])


@asynccontextmanager
async def on_postgres(campaign: Campaign) -> AsyncIterator[None]:
    """Start a server for this campaign only."""
    with restartable_postgres() as server:
        await asyncio.to_thread(server.start)
        SERVERS[campaign.seed] = server
        campaign.database = f"{server.url}/postgres"
        campaign.master_options += ["--database-url", campaign.database]
        campaign.targets["server"] = ["server"]
        yield


POSTGRES = Feature(
    "postgres",
    faults=(
        Fault("restart of PostgreSQL", restart_server, "server"),
        Fault("SIGSTOP of PostgreSQL", hang_server, "server"),
        Fault("connections to PostgreSQL cut", cut_connections, "server"),
    ),
    bugs={"what_could_not_be_written_counts_as_written": "acknowledged"},
    around=on_postgres,
)
