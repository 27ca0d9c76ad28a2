"""A real worker wakes a sleeping computer of its subnet, the loopback, because work waits that only this one can do.

The sleeper is a listener that counts magic packets, and connects once they have come.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace

import aiohttp
import pytest

from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState, Load
from loopline_shared.power.magic_packets import PACKETS, magic_packet
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.protocol.power import Armed, GoodBye, SleepCause, SleepKind, WakeFacts
from tests.api.bench import FACTS, FakeWorker
from tests.live.grid import Grid, wait_for

CARD, LOOPBACK, PORT = "52:54:00:12:34:57", "127.0.0.0/8", 9
WAKE = WakeFacts("eth0", CARD, LOOPBACK, from_suspend=Armed.YES, can_suspend=True)


@asynccontextmanager
async def connected(grid: Grid) -> AsyncIterator[FakeWorker]:
    """Connect the worker ``ant``, which has two slots."""
    token = (grid.data_dir / "tokens" / "worker").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{grid.url}/api/v1/link", headers=headers) as link:
        worker = FakeWorker(link, WorkerSession("ant", "boot", replace(FACTS, slots=2)), Load(slots=2))
        await worker.open()
        yield worker


async def test_worker_of_the_subnet_wakes_a_sleeper_for_waiting_work(grid: Grid) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as card:
        card.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            card.bind(("", PORT))
        except OSError as error:
            pytest.skip(f"cannot listen on port {PORT}: {error.strerror}")
        card.setblocking(False)
        await grid.start_worker("bee", slots=1)
        await grid.connected("bee")
        async with connected(grid) as ant:
            good_bye = GoodBye(SleepKind.SUSPEND, SleepCause.IDLE, WAKE)
            await ant.socket.send_bytes(ant.session.report((), (), ant.load, good_bye=good_bye)[1])
            async for _ in ant.socket:
                pass  # until the master closes the link
        job = await grid.submit("true", requires=Requirements(slots=2))
        count = 0

        async def are_enough() -> bool:
            nonlocal count
            with suppress(BlockingIOError):
                count += card.recv(2048) == magic_packet(CARD)
            return count >= PACKETS

        await wait_for("magic packets", are_enough)
    assert "sent magic packets through lo to wake ant" in grid.log("bee")
    async with connected(grid) as ant:
        serving = asyncio.create_task(ant.serve())
        assert (await grid.ended(job)).state is JobState.SUCCEEDED
        serving.cancel()
    view = await grid.client().worker("ant")
    assert view.sleep
    assert (view.sleep.since, view.sleep.can_be_woken, view.sleep.failed_wakes) == (None, True, 0)
    assert view.sleep.woken_at is not None
