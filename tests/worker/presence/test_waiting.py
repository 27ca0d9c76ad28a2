"""Routines: common behaviour of both loops, and non-blocking connections."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.presence.waiting.local_connection import LocalConnection
from loopline_worker.presence.waiting.poll_loop import Bell, PollLoop
from loopline_worker.presence.waiting.routine import Routine, Wait, pause
from tests.worker.bench import until
from tests.worker.presence.loops import in_both_loops, running

SOON_S = 0.01


async def result(loop: str, routine: Routine[object]) -> object:
    """Run a routine alone, and return its result or raise its exception."""
    if loop == "asyncio":
        return await run(routine)
    results: list[object] = []

    def noted() -> Routine[None]:
        results.append((yield from routine))

    await asyncio.to_thread(PollLoop().run, noted())
    return results[0]


def soon() -> float:
    return time.monotonic() + SOON_S


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@in_both_loops
async def test_wait_ends_when_its_file_is_readable_or_its_time_is_over(loop: str, pipe: tuple[int, int]) -> None:
    def waits() -> Routine[list[bool]]:
        before = yield Wait(pipe[0], soon())
        os.write(pipe[1], b"x")
        after = yield Wait(pipe[0], math.inf)
        late = yield Wait(pipe[0], 0.0)
        yield from pause(SOON_S)
        return [before, after, late]

    assert await result(loop, waits()) == [False, True, True]


@in_both_loops
async def test_routine_waits_while_another_continues(loop: str) -> None:
    steps: list[str] = []
    bell = Bell()

    def waits() -> Routine[None]:
        steps.append("waits")
        yield from bell.rings()
        steps.append("woken")

    def wakes() -> Routine[None]:
        for _ in range(3):
            yield from pause(SOON_S)
            steps.append("goes on")
        bell.ring()

    async with running(loop, waits(), wakes()):
        await until(lambda: "woken" in steps)
    assert steps == ["waits", "goes on", "goes on", "goes on", "woken"]


@in_both_loops
async def test_exception_of_one_routine_ends_and_closes_all(loop: str) -> None:
    closed: list[str] = []

    def fails() -> Routine[NoReturn]:
        yield from pause(SOON_S)
        raise ZeroDivisionError

    def waits() -> Routine[None]:
        try:
            yield Wait(None, math.inf)
        finally:
            closed.append("waits")

    with pytest.raises(ZeroDivisionError):
        async with running(loop, waits(), fails()):
            await until(lambda: closed)
    assert closed == ["waits"]


@in_both_loops
async def test_bell_rings_until_it_is_silenced(loop: str) -> None:
    bell = Bell()
    bell.silence()
    assert not await result(loop, bell.rings(soon()))
    bell.ring()
    bell.ring()
    assert await result(loop, bell.rings())
    assert await result(loop, bell.rings(0.0))
    bell.silence()
    assert not await result(loop, bell.rings(soon()))


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[LocalConnection, socket.socket]]:
    """A connection and its peer."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/peer")
        server.listen()
        with LocalConnection(f"{tmp_path}/peer") as connection, server.accept()[0] as peer:
            yield connection, peer


Ends = tuple[LocalConnection, socket.socket]


@in_both_loops
async def test_partial_data_is_joined_and_surplus_is_kept(loop: str, ends: Ends) -> None:
    connection, peer = ends

    def receives() -> Routine[list[bytes]]:
        peer.send(b"fir")
        head = yield from connection.exactly(2, math.inf)
        assert (yield from connection.exactly(0, math.inf)) == b""
        peer.send(b"st\nsecond\nthi")
        first = yield from connection.line(10, math.inf)
        second = yield from connection.line(10, math.inf)
        peer.send(b"rd")
        third = yield from connection.exactly(5, math.inf)
        return [head, first, second, third]

    assert await result(loop, receives()) == [b"fi", b"rst", b"second", b"third"]


@in_both_loops
async def test_late_closed_or_verbose_peer_is_an_error(loop: str, ends: Ends) -> None:
    connection, peer = ends
    with pytest.raises(TimeoutError):
        await result(loop, connection.exactly(1, soon()))
    peer.send(b"x" * 100)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        await result(loop, connection.line(10, math.inf))
    peer.send(b"y" * 100)
    with pytest.raises(TimeoutError):  # an endless sender does not cause an endless wait
        await result(loop, connection.exactly(1, 0.0))
    peer.close()
    with pytest.raises(EOFError, match="the other end has closed"):
        await result(loop, connection.exactly(101, math.inf))


def test_peer_that_does_not_read_is_an_error(ends: Ends) -> None:
    with pytest.raises(BlockingIOError):
        ends[0].send(bytes(10_000_000))
