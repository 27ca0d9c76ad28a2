"""Output of a task can be followed while it is written, on any worker, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from loopline_shared.model import Outcome, TaskId
from tests.live.grid import Grid


async def until(pieces: AsyncIterator[bytes], end: bytes) -> bytes:
    """Return the output up to and including ``end``."""
    seen = b""
    async with asyncio.timeout(90):
        while not seen.endswith(end):
            seen += await anext(pieces)
    return seen


async def rest(pieces: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(90):
        return b"".join([piece async for piece in pieces])


async def test_output_is_followed_across_a_restart_of_the_master(grid: Grid) -> None:
    await grid.start_worker("ant")
    first, second = grid.gate("first"), grid.gate("second")
    job = await grid.submit(f"echo one; {first.wait}; seq 5000; echo two; {second.wait}; echo three")
    pieces = grid.client().output(TaskId(job, 1), follow=True)  # requested before the task starts
    assert await until(pieces, b"one\n") == b"one\n"
    first.open()
    numbers = "".join(f"{n}\n" for n in range(1, 5001)).encode()
    assert await until(pieces, b"two\n") == numbers + b"two\n"
    await grid.kill_master()
    await grid.start_master()
    second.open()
    assert await rest(pieces) == b"three\n"
    again = grid.client().output(TaskId(job, 1), follow=True)
    assert await rest(again) == b"one\n" + numbers + b"two\nthree\n"


async def test_reader_is_notified_when_another_attempt_continues(forgetful_grid: Grid) -> None:
    grid = forgetful_grid
    await grid.start_worker("ant")
    gate = grid.gate()
    job = await grid.submit(f"echo on $LOOPLINE_WORKER; {gate.wait}; echo done >&2")
    pieces = grid.client().output(TaskId(job, 1), follow=True)
    assert await until(pieces, b"ant\n") == b"on ant\n"
    await grid.kill_worker("ant")
    await grid.start_worker("bee")
    assert await until(pieces, b"on bee\n") == b"\n--- attempt 2 on bee continues, from its beginning ---\non bee\n"
    gate.open()
    assert await rest(pieces) == b""
    assert await rest(grid.client().output(TaskId(job, 1), "stderr", follow=True)) == b"done\n"
    assert [a.state.value for a in await grid.attempts(job)] == ["lost", Outcome.SUCCEEDED]
