"""A client whose refused requests take long to parse is read later; other clients are not delayed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from loopline_master.admission import buckets, busy_time
from loopline_master.admission.busy_time import BURST_S, FREE_S, LINK_RESTS, SHARE, BusyTime, rest_after
from loopline_master.links import connection
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.link_session import WorkerSession
from tests.api.bench import FACTS, Bench, running_master, until


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1000.0, list[float]()
        for module in (buckets.time, busy_time.time):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)
            monkeypatch.setattr(module, "perf_counter", lambda: self.now)
        monkeypatch.setattr(busy_time.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))

    def refuse(self, busy: BusyTime, sender: str, reading_s: float) -> None:
        with suppress(ValueError), busy.charged(sender):
            self.now += reading_s
            raise ValueError


async def test_sender_is_delayed_until_it_used_at_most_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy = Clock(monkeypatch), BusyTime()
    clock.refuse(busy, "a", FREE_S)
    clock.refuse(busy, "a", BURST_S / 2 + FREE_S)
    await busy.rest("a")
    clock.refuse(busy, "a", BURST_S / 2 + 0.1 + FREE_S)
    await busy.rest("a")
    await busy.rest("b")
    assert clock.slept == [pytest.approx(0.1 / SHARE, rel=0.1)]


async def test_delayed_requests_are_read_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy = Clock(monkeypatch), BusyTime()
    clock.refuse(busy, "a", BURST_S + FREE_S + SHARE)
    for _ in range(3):
        await busy.rest("a")
    one, two, three = clock.slept
    assert one < two < three


async def test_request_that_would_be_delayed_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy = Clock(monkeypatch), BusyTime()
    clock.refuse(busy, "a", 60.0)
    with pytest.raises(LooplineError, match="keeps others waiting") as refusal:
        await busy.rest("a")
    assert refusal.value.status == 429


def test_link_is_delayed_only_after_a_long_frame() -> None:
    assert rest_after(FREE_S) == 0.0
    assert rest_after(FREE_S + 1.0) == pytest.approx(LINK_RESTS)


async def test_invalid_requests_of_one_client_do_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_time, "FREE_S", -60.0)  # each refusal counts as a minute of loop time
    monkeypatch.setattr(busy_time, "LINK_RESTS", 0)
    async with running_master(tmp_path) as master:
        assert (await master.ask("POST", "/jobs", "user", json={"command": 1})).status == 422
        late = await master.ask("POST", "/jobs", "user", json={"command": ["true"]})
        assert (late.status, late.body["code"]) == (429, "too_much_refused")
        await master.submit("admin")
        await _nonsense_from_a_worker(master, "worker")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await _nonsense_from_a_worker(master, "worker")
        assert refused.value.status == 429
        await _nonsense_from_a_worker(master, "admin")


async def test_link_is_not_read_while_it_is_delayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest_s, slept, sleep = 0.00123, list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(connection, "rest_after", lambda reading_s: rest_s)
    monkeypatch.setattr(connection.asyncio, "sleep", noted)
    async with running_master(tmp_path) as master, master.worker("w1") as worker:
        await worker.report()

        async def has_rested() -> bool:
            return slept.count(rest_s) >= 2

        await until(has_rested)


async def _nonsense_from_a_worker(master: Bench, role: str) -> None:
    async with master.http.ws_connect(master.address("/link"), headers=master.headers(role)) as socket:
        await socket.send_bytes(WorkerSession("bad", "boot", FACTS).hello())
        await socket.receive_bytes()
        await socket.send_bytes(b"[]")
        async with asyncio.timeout(60):
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
