"""Worker links: opened, refused, superseded, closed; errors of one worker do not affect others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType
from sqlalchemy import func, select

from loopline_master.links import WorkerLinks, connection
from loopline_master.store import Store
from loopline_master.store.tables import event_log
from loopline_shared.model import AttemptId, Load, Outcome, Result
from loopline_shared.protocol.link_session import WorkerSession, encode
from loopline_shared.protocol.worker_link import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Assign,
    Hello,
    Refused,
    Run,
    Welcome,
)
from loopline_shared.rest.times import seconds
from tests.api.bench import FACTS, Bench, running_master, until


def connect(master: Bench, role: str = "worker") -> Any:
    return master.http.ws_connect(master.address("/link"), headers=master.headers(role), max_msg_size=MAX_FRAME_BYTES)


async def farewell(socket: aiohttp.ClientWebSocketResponse) -> tuple[int | None, str]:
    """Return the code and reason with which the master closed the link."""
    async with asyncio.timeout(60):
        while (message := await socket.receive()).type is WSMsgType.BINARY:
            pass
    return socket.close_code, str(message.extra or "")


async def is_connected(master: Bench, name: str, connected: bool = True) -> bool:
    answer = await master.ask("GET", f"/workers/{name}")
    return answer.status == 200 and answer.body["connected"] is connected


async def test_worker_joins_reports_and_leaves(master: Bench) -> None:
    async with master.worker("w1", slots=3):
        view = await until(lambda: _slots(master, "w1", 3))
        assert view["connected"]
        assert view["facts"]["cpus"] == FACTS.cpus
        assert [worker["name"] for worker in (await master.get("/workers"))["items"]] == ["w1"]
    await until(lambda: is_connected(master, "w1", False))


async def test_report_without_news_is_shown_but_not_logged(master: Bench) -> None:
    async with master.worker("w1") as worker:
        await until(lambda: _slots(master, "w1", 4))
        rows = await _log_rows(master)
        async with master.stream("/events") as changes:
            worker.load = replace(worker.load, memory_available_bytes=77)
            await worker.report()
            while b"w1" not in await changes.readline():
                pass
        shown = await master.get("/workers/w1")
        assert shown["load"]["memory_available_bytes"] == 77
        assert seconds(shown["lease_until"]) == pytest.approx(seconds(shown["reported_at"]) + 30.0)
        assert await _log_rows(master) == rows
        worker.load = replace(worker.load, in_use=True)
        await worker.report()
        await until(lambda: _in_use(master, "w1"))
        assert await _log_rows(master) == rows + 1
        (job,) = [await master.submit()]
        await until(lambda: _is_done(master, job))  # sequence numbers still match on both sides


async def _log_rows(master: Bench) -> int:
    return int(await master.parts[Store]._read(lambda c: c.scalar(select(func.count()).select_from(event_log))))


async def _in_use(master: Bench, name: str) -> bool:
    return bool((await master.get(f"/workers/{name}"))["load"]["in_use"])


async def _is_done(master: Bench, job: int) -> bool:
    return bool((await master.get(f"/jobs/{job}"))["state"] == "succeeded")


async def test_drained_worker_gets_no_task(master: Bench) -> None:
    async with master.worker("w1"):
        assert (await master.ask("POST", "/workers/w1/drain")).body["draining"] is True
        drained = await master.ask("POST", "/workers/w1/drain?reason=new%20disk")
        assert (drained.body["draining"], drained.body["drain_reason"]) == (True, "new disk")
        assert (await master.ask("POST", "/workers/w1/drain?reason=two%0Alines")).status == 422
        job = await master.submit()
        assert (await master.get(f"/jobs/{job}"))["state"] == "queued"
        assert (await master.ask("POST", "/workers/w1/undrain")).body["draining"] is False
        await until(lambda: _has_succeeded(master, job))


async def test_answer_carries_the_time_that_its_report_was_held(master: Bench) -> None:
    """The worker subtracts it to measure the network delay; later frames do not carry it."""
    async with connect(master) as socket:
        session = WorkerSession("w1", "boot", FACTS)
        await socket.send_bytes(session.hello())
        assert isinstance(session.receive(await socket.receive_bytes()), Welcome)
        await socket.send_bytes(session.report((), (), Load(slots=1))[1])
        answer = session.receive(await socket.receive_bytes())
        assert isinstance(answer, Assign)
        assert answer.seen == 1
        assert answer.held_s is not None
        assert 0 < answer.held_s < 60
        await master.submit()
        later = session.receive(await socket.receive_bytes())
        assert isinstance(later, Assign)
        assert later.run
        assert later.held_s is None


@asynccontextmanager
async def reported(
    master: Bench,
) -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, WorkerSession, Callable[[], Awaitable[Assign]]]]:
    """Yield socket, session and a receive function of a worker with one slot whose first Report was answered."""
    async with connect(master) as socket:
        session = WorkerSession("w1", "boot", FACTS)

        async def next_assign() -> Assign:
            assign = session.receive(await socket.receive_bytes())
            assert isinstance(assign, Assign)
            return assign

        await socket.send_bytes(session.hello())
        assert isinstance(session.receive(await socket.receive_bytes()), Welcome)
        await socket.send_bytes(session.report((), (), Load(slots=1))[1])
        assert (await next_assign()).seen == 1
        yield socket, session, next_assign


@pytest.mark.parametrize(("within_s", "frames"), [(3600.0, 1), (0.0, 2)])
async def test_result_is_acknowledged_with_the_next_task_or_in_time(
    master: Bench, monkeypatch: pytest.MonkeyPatch, within_s: float, frames: int
) -> None:
    """The acknowledgement of a stored result waits for the next task, but only for a short time."""
    monkeypatch.setattr(connection, "ACKNOWLEDGE_WITHIN_S", within_s)
    async with reported(master) as (socket, session, next_assign):
        first = await master.submit()
        run = (await next_assign()).run[0]
        done = Result(run.attempt, Outcome.SUCCEEDED, 0)
        await socket.send_bytes(session.report((), (done,), Load(slots=1))[1])
        await until(lambda: _has_succeeded(master, first))
        received = [await next_assign()] if frames == 2 else []
        assert all(assign.seen == 2 and not assign.run for assign in received)
        await master.submit()
        received.append(await next_assign())
        assert (received[-1].seen, len(received[-1].run)) == (2, 1)
        assert (received[0].held_s or 0) > 0
        assert len(received) == frames
        assert received[-1].seq == 2 + frames
        await socket.send_bytes(
            session.report((), (Result(received[-1].run[0].attempt, Outcome.SUCCEEDED, 0),), Load(1))[1]
        )
        await until(lambda: _has_succeeded(master, 2))


async def test_result_of_a_worker_without_slots_is_acknowledged_at_once(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets no further task, and may wait for the acknowledgement to exit."""
    monkeypatch.setattr(connection, "ACKNOWLEDGE_WITHIN_S", 3600.0)
    async with reported(master) as (socket, session, next_assign):
        await master.submit()
        done = Result((await next_assign()).run[0].attempt, Outcome.SUCCEEDED, 0)
        await socket.send_bytes(session.report((), (done,), Load(slots=0))[1])
        answer = await asyncio.wait_for(next_assign(), 60)
        assert (answer.seen, answer.run) == (2, ())


@pytest.mark.parametrize(("life", "is_let_in"), [("", True), ("another", False)])
async def test_report_from_another_life_of_the_database_closes_the_link(
    master: Bench, life: str, is_let_in: bool
) -> None:
    """A worker without attempts of any master names no life."""
    async with connect(master) as socket:
        session = WorkerSession("w1", "boot", FACTS)
        await socket.send_bytes(session.hello())
        welcome = session.receive(await socket.receive_bytes())
        assert isinstance(welcome, Welcome)
        assert len(welcome.life) == 16
        await socket.send_bytes(session.report((), (), Load(slots=1), life=life)[1])
        if is_let_in:
            assert isinstance(session.receive(await socket.receive_bytes()), Assign)
        else:
            assert await farewell(socket) == (1002, "a report of what life another of the database has given")


async def test_other_protocol_version_is_refused_with_a_hint(master: Bench) -> None:
    async with connect(master) as socket:
        session = WorkerSession("w1", "boot", FACTS)
        hello = json.loads(session.hello())
        await socket.send_str(json.dumps({**hello, "version": 99}))
        answer = session.receive(await socket.receive_bytes())
        assert isinstance(answer, Refused)
        assert answer.code == "version"
        assert answer.hint
        assert (await farewell(socket))[0] == 1000
    assert (await master.ask("GET", "/workers/w1")).status == 404


async def test_known_worker_with_another_version_is_named(master: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async with master.worker("w1"):
        await until(lambda: is_connected(master, "w1"))
        assert (await master.get("/workers/w1"))["refused"] == ""
    for _ in range(2):
        async with connect(master) as socket:
            await socket.send_bytes(encode(Hello(99, "w1", "boot", FACTS)))
            await farewell(socket)
    said = f"worker w1 (loopline {FACTS.agent}) speaks link version 99, this master speaks {PROTOCOL_VERSION}"
    assert (await master.get("/workers/w1"))["refused"] == said
    assert [view["refused"] for view in (await master.get("/workers"))["items"]] == [said]
    assert caplog.text.count(f"link from 127.0.0.1 refused: {said}; install the same") == 1


async def test_cloned_computer_is_refused_while_the_original_is_connected(master: Bench) -> None:
    """A cloned disk has the token, name and data folder of the original."""
    first, copy = (replace(FACTS, machine=name) for name in ("one", "two"))
    async with connect(master) as socket:
        session = WorkerSession("w1", "boot1", first)
        await socket.send_bytes(session.hello())
        assert isinstance(session.receive(await socket.receive_bytes()), Welcome)
        async with connect(master) as other:
            await other.send_bytes(WorkerSession("w1", "boot2", copy).hello())
            answer = WorkerSession("w1", "boot2", copy).receive(await other.receive_bytes())
            assert isinstance(answer, Refused)
            assert answer.code == "same_identity"
            assert "loopline leave --here-only" in answer.hint
        assert (await master.get("/workers/w1"))["twin"] == "127.0.0.1"
        assert [view["twin"] for view in (await master.get("/workers"))["items"]] == ["127.0.0.1"]
        assert await is_connected(master, "w1"), "the original is not affected"
        again = WorkerSession("w1", "boot3", first)  # its old link may look open
        async with connect(master) as same:
            await same.send_bytes(again.hello())
            assert isinstance(again.receive(await same.receive_bytes()), Welcome)
    await until(lambda: is_connected(master, "w1", False))
    async with connect(master) as socket:
        session = WorkerSession("w1", "boot2", copy)
        await socket.send_bytes(session.hello())
        assert isinstance(session.receive(await socket.receive_bytes()), Welcome)


async def test_open_link_can_be_taken_over_only_with_its_secret(master: Bench) -> None:
    """Knowing the token of a worker is not enough to take its place."""
    ours = WorkerSession("w1", "boot", FACTS, instance="ours")
    async with connect(master) as socket:
        await socket.send_bytes(ours.hello())
        assert isinstance(ours.receive(await socket.receive_bytes()), Welcome)
        for word in ("", "theirs"):
            stranger = WorkerSession("w1", "boot2", FACTS, instance=word)
            async with connect(master) as other:
                await other.send_bytes(stranger.hello())
                answer = stranger.receive(await other.receive_bytes())
                assert isinstance(answer, Refused)
                assert answer.code == "same_identity"
        assert await is_connected(master, "w1")
        again = WorkerSession("w1", "boot2", FACTS, instance="ours")
        async with connect(master) as same:
            await same.send_bytes(again.hello())
            assert isinstance(again.receive(await same.receive_bytes()), Welcome)


async def test_worker_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"max_workers": 1}) as master, master.worker("w1"):
        async with connect(master) as socket:
            session = WorkerSession("w2", "boot", FACTS)
            await socket.send_bytes(session.hello())
            answer = session.receive(await socket.receive_bytes())
            assert isinstance(answer, Refused)
            assert answer.code == "too_many_workers"
        assert await is_connected(master, "w1")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"[]",
        b'{"kind": "welcome"}',
        b'{"kind": "report", "seq": 1, "seen": 0, "holding": [], "results": [], "load": {"slots": 1}}',
        b'{"kind": "hello", "version": 1, "worker": "../../etc", "boot": "b", "facts": {}}',
        b"[" * 1_000_000,
    ],
)
async def test_invalid_hello_closes_only_that_link(master: Bench, frame: bytes) -> None:
    async with master.worker("good"):
        async with connect(master) as socket:
            await socket.send_bytes(frame)
            code, reason = await farewell(socket)
            assert code == 1002
            assert reason
        assert await is_connected(master, "good")


async def test_frame_out_of_sequence_closes_the_link(master: Bench) -> None:
    async with master.worker("w1") as worker:
        worker.session.sent += 1
        await worker.report()
        await until(lambda: is_connected(master, "w1", False))
        assert worker.socket.close_code == 1002
    async with master.worker("w1"):
        assert await is_connected(master, "w1")


async def test_oversized_frame_closes_the_link(master: Bench) -> None:
    async with master.worker("w1") as worker:
        with suppress(ConnectionError):  # the master closes it before the whole frame is sent
            await worker.socket.send_bytes(b" " * (MAX_FRAME_BYTES + 1))
        await until(lambda: is_connected(master, "w1", False))


async def test_connection_without_a_hello_is_closed(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HELLO_WITHIN_S", 0.05)
    async with connect(master) as socket:
        code, reason = await farewell(socket)
        assert (code, reason) == (1002, "no hello within 0.05 s")


async def test_newer_link_of_a_worker_takes_over(master: Bench) -> None:
    async with master.worker("w1") as old, master.worker("w1") as new:
        await until(lambda: _is(old.socket.closed))
        assert old.socket.close_code == 1000
        assert not new.socket.closed
        job = await master.submit()
        await until(lambda: _has_succeeded(master, job))
        assert await is_connected(master, "w1")


async def test_link_is_closed_when_its_lease_ends(tmp_path: Path) -> None:
    async with running_master(tmp_path, lease_s=0.2, report_every_s=0.1) as master, master.worker("w1") as worker:
        await until(lambda: _is(worker.socket.closed))
        assert not (await master.get("/workers/w1"))["connected"]


async def test_link_that_is_not_read_is_closed(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"max_frames": 2}) as master, master.worker("w1"):
        link = master.parts[WorkerLinks]._open["w1"]
        assert link._transport is not None
        long = Run(AttemptId(1, 1, 1), ("x" * 2**20,), {}, {})
        for number in range(1, 100):
            if not link._transport.is_closing():
                master.parts[WorkerLinks].deliver("w1", Assign(number, 0, (long,)))
        assert link._transport.is_closing()
        await until(lambda: is_connected(master, "w1", False))


async def test_frames_for_other_sessions_are_dropped(master: Bench) -> None:
    master.parts[WorkerLinks].deliver("nobody", Assign(1, 0))
    master.parts[WorkerLinks].close("nobody", 1)
    async with master.worker("w1") as worker:
        master.parts[WorkerLinks].close("w1", 12345)
        assert await is_connected(master, "w1")
        assert not worker.socket.closed


async def test_stopping_master_closes_links_with_going_away(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http:
        async with running_master(tmp_path) as master:
            socket = await http.ws_connect(master.address("/link"), headers=master.headers("worker"))
            session = WorkerSession("w1", "boot", FACTS)
            await socket.send_bytes(session.hello())
            assert isinstance(session.receive(await socket.receive_bytes()), Welcome)
            await socket.send_bytes(session.report([], [], Load(1))[1])
            reading = asyncio.create_task(farewell(socket))
        assert await reading == (1001, "the master is stopping")


async def _slots(master: Bench, name: str, slots: int) -> Any:
    view = await master.get(f"/workers/{name}")
    return view if view["slots"] == slots else None


async def _has_succeeded(master: Bench, job: int) -> bool:
    return bool((await master.get(f"/jobs/{job}"))["state"] == "succeeded")


async def _is(fact: bool) -> bool:
    return fact
