"""Turns of uploads: the most work at stake per byte first, within the budget."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from types import SimpleNamespace

import pytest

from loopline_master.files import upload_turns
from loopline_master.files.upload_turns import UploadTurns
from loopline_shared.rest import stakes
from tests.api.bench import Bench

PIECE = 2**20


class Queue:
    """Turns under a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_s: float) -> None:
        self.now = 100.0
        self.granted: list[str] = []
        self.turns = UploadTurns(bytes_s)
        self.asking: set[asyncio.Task[None]] = set()
        monkeypatch.setattr(upload_turns, "time", SimpleNamespace(monotonic=lambda: self.now))

    async def ask(self, name: str, stake: float = 1.0, size_bytes: int = PIECE) -> asyncio.Task[None]:
        async def wait() -> None:
            await self.turns.wait(name, size_bytes, stake)
            self.granted.append(name)

        asking = asyncio.create_task(wait())
        self.asking.add(asking)
        await asyncio.sleep(0)
        return asking

    async def later(self, seconds: float) -> list[str]:
        """Let time pass. Return the names granted until now."""
        self.now += seconds
        self.turns._grant()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.granted


async def test_most_work_per_byte_is_sent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(monkeypatch, bytes_s=PIECE)
    for name, stake in (("first", 0.0), ("little", 1.0), ("much", 5.0), ("same", 5.0)):
        await queue.ask(name, stake)
    assert await queue.later(0.0) == ["first"]
    for name in ("much", "same", "little"):
        queue.turns.arrived(queue.granted[-1])
        assert (await queue.later(1.0))[-1] == name


async def test_no_more_than_the_budget_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(monkeypatch, bytes_s=10 * PIECE)
    for number in range(200):
        await queue.ask(str(number))
    for step in range(1, 100):
        for name in await queue.later(0.05):
            queue.turns.arrived(name)
        assert abs(len(queue.granted) - 10 * 0.05 * step) <= 1.5


async def test_slow_network_gets_no_more_than_it_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(monkeypatch, bytes_s=10 * PIECE)
    for number in range(200):
        await queue.ask(str(number))
    for _ in range(50):
        await queue.later(1.0)
    assert len(queue.granted) == 5, "half a second of the budget is on its way"
    queue.turns.arrived("0")
    assert len(await queue.later(0.0)) == 6
    await queue.later(60.0)
    assert len(queue.granted) > 6, "what does not arrive within a minute does not count"


async def test_worker_that_leaves_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(monkeypatch, bytes_s=PIECE)
    await queue.ask("first")
    gone = await queue.ask("gone", 9.0)
    await queue.ask("next")
    gone.cancel()
    await asyncio.sleep(0)
    queue.turns.arrived("first")
    assert await queue.later(1.0) == ["first", "next"]


async def test_checkpoint_is_taken_at_its_turn_and_other_files_at_once(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline_master.timings.TURN_WITHIN_S", 0.01)
    names = [sha256(content).hexdigest() for content in (b"one", b"two")]

    async def ask(name: str, stake: str = "") -> int:
        headers = master.headers("worker") | ({stakes.HEADER: stake} if stake else {})
        async with master.http.head(master.address(f"/files/{name}"), headers=headers) as answer:
            return answer.status

    assert await ask(names[0], stakes.encode(10**8, 1.0)) == 404
    assert await ask(names[1], stakes.encode(10**8, 2.0)) == stakes.WAIT
    assert await ask(names[1]) == 404
    for impossible in ("9 many", "1099511627776 1.0", "9 1e300"):
        assert await ask(names[1], impossible) == 422
    assert (await master.ask("PUT", f"/files/{names[0]}", "worker", data=b"one")).status == 204
    assert await ask(names[0], stakes.encode(3, 1.0)) == 200, "a file that is there needs no turn"
