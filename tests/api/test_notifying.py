"""Notifications: nobody waits long for another one's receiver, and none goes where only the master may."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from loopline_master.notify import notifier, webhook
from tests.api.bench import Bench, running_master, until, webhook_receiver


@asynccontextmanager
async def receiver(heard: list[str], may_answer: asyncio.Event) -> AsyncIterator[str]:
    async def hear(request: web.Request) -> None:
        heard.append(request.path)
        await may_answer.wait()

    async with webhook_receiver(hear) as url:
        yield url


async def end_one(master: Bench, url: str) -> int:
    job = await master.submit(notify={"webhook": url})
    await master.ask("POST", f"/jobs/{job}/cancel")
    return job


async def test_a_slow_receiver_delays_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_WITHIN", aiohttp.ClientTimeout(total=600))
    open_, shut = asyncio.Event(), asyncio.Event()
    open_.set()
    slow_heard: list[str] = []
    quick_heard: list[str] = []
    async with (
        receiver(slow_heard, shut) as slow,
        receiver(quick_heard, open_) as quick,
        running_master(tmp_path, webhook_hosts=["127.0.0.0/8"]) as master,
    ):
        jobs = [await end_one(master, f"{slow}/{number}") for number in range(notifier.AT_ONCE + 1)]
        await until(lambda: _are(slow_heard, notifier.AT_ONCE_EACH))
        quick_job = await end_one(master, quick)
        await until(lambda: _is_told(master, quick_job))
        assert len(slow_heard) == notifier.AT_ONCE_EACH
        shut.set()
        for job in jobs:
            await until(lambda job=job: _is_told(master, job))  # type: ignore[misc]
    assert sorted(slow_heard) == [f"/{number}" for number in range(len(jobs))], "each once"
    assert len(quick_heard) == 1


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("::ffff:93.184.215.14", True),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("2002:7f00:1::", False),
        ("::127.0.0.1", False),
        ("224.0.0.1", False),
    ],
)
def test_what_may_lead_to_an_address_that_is_not_public_is_not_called(address: str, may: bool) -> None:
    assert webhook._PublicResolver([])._may_call(ipaddress.ip_address(address)) is may
    assert webhook._PublicResolver(["::/0", "0.0.0.0/0"])._may_call(ipaddress.ip_address(address)), (
        "the settings may allow it"
    )


async def _are(heard: list[str], count: int) -> bool:
    return len(heard) >= count


async def _is_told(master: Bench, job: int) -> bool:
    return (await master.get(f"/jobs/{job}"))["notification"] == "told"
