"""Users of a computer whose worker is a system service: session reports, and pauses."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loopline_shared.errors import LooplineError
from loopline_worker.owner import session_server as server_module
from loopline_worker.owner.__main__ import in_text
from loopline_worker.owner.session_server import SessionServer, ask, people_but_tasks
from loopline_worker.owner.state import WorkerState
from loopline_worker.presence import reporter as reporter_module
from loopline_worker.presence.desktop import Desktop
from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.presence.reporter import Reporter
from loopline_worker.presence.session_lock import SessionLock
from loopline_worker.presence.session_reports import SessionReport, SessionReports
from tests.worker.bench import until
from tests.worker.presence.loops import in_both_loops, running
from tests.worker.presence.witnesses import Hand
from tests.worker.test_owner_page import STATE

ME = os.getuid()


@dataclass
class Worker:
    """The interface of the agent that the server uses."""

    place: Path
    reports: SessionReports = field(default_factory=SessionReports)
    here: set[int] = field(default_factory=lambda: {ME})
    pauses: list[float] = field(default_factory=list)
    nudges: int = 0
    watches: bool = True
    keeps_awake: bool = False

    asks: int = 0

    def may_ask(self, uid: int) -> bool:
        self.asks += 1
        return uid in self.here

    def nudge(self) -> None:
        self.nudges += 1

    def state(self) -> WorkerState:
        return STATE

    def pause(self, until: float) -> None:
        self.pauses.append(until)

    def resume(self) -> None:
        self.pauses.clear()

    def idle_s(self) -> float | None:
        return self.reports.idle_s(ME, 1)

    async def asked(self, **request: Any) -> dict[str, Any]:
        return await asyncio.to_thread(ask, self.place, request)


def reporter_of(place: Path, hand: Hand) -> Reporter:
    return Reporter(str(place), IdleDetector([hand]), Desktop(), SessionLock())


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(tmp_path / "sessions")
    server = SessionServer(worker.place, worker, worker.reports, worker, worker.may_ask)  # type: ignore[arg-type]
    await server.open()
    yield worker
    await server.close()
    assert not worker.place.exists()


@in_both_loops
async def test_reporter_reports_an_input_at_once(worker: Worker, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    monkeypatch.setattr(reporter_module, "_EVERY_S", 3600.0)
    monkeypatch.setattr(reporter_module, "_WHILE_TASKS_RUN_S", 0.01)
    hand = Hand(500.0)
    async with running(loop, reporter_of(worker.place, hand).run()):
        await until(lambda: (worker.idle_s() or 0) >= 500)
        hand.idle_s = 0.0
        await until(lambda: (worker.idle_s() or 0) < 400)
        assert worker.nudges
    await until(lambda: worker.idle_s() is None)


@in_both_loops
async def test_notified_probe_wakes_the_reporter_without_running_tasks(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(reporter_module, "_EVERY_S", 3600.0)
    worker.watches, hand = False, Hand(500.0)
    reporter = reporter_of(worker.place, hand)
    async with running(loop, reporter.run()):
        await until(lambda: (worker.idle_s() or 0) >= 500)
        for idle_s in (400.0, 300.0, 200.0):
            hand.idle_s = idle_s
            reporter.stir()
            await until(lambda: idle_s <= (worker.idle_s() or 0) < idle_s + 50)  # noqa: B023 - awaited here
        assert worker.asks == 4, "it waits again after a wake-up"


async def test_computer_may_sleep_from_the_first_input_on(worker: Worker) -> None:
    worker.keeps_awake = True
    reader, writer = await asyncio.open_unix_connection(worker.place)
    for idle_s, keep_awake in ((500.0, False), (501.0, True), (0.0, False)):  # nothing is known before the first
        writer.write(json.dumps({"do": "report", "idle_s": idle_s}).encode() + b"\n")
        assert json.loads(await reader.readline())["keep_awake"] is keep_awake
    writer.close()


@in_both_loops
async def test_refused_reporter_connects_again(worker: Worker, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """At a login the worker may not know the session yet."""
    monkeypatch.setattr(reporter_module, "_AGAIN_S", 0.01)
    worker.here.clear()
    async with running(loop, reporter_of(worker.place, Hand(500.0)).run()):
        await until(lambda: worker.asks)
        assert worker.idle_s() is None
        worker.here.add(ME)
        await until(lambda: (worker.idle_s() or 0) >= 500)


@in_both_loops
@pytest.mark.parametrize("answer", [b"", b"[1]\n", b"{\n", b'{"watch": 1}\n', b"x" * 10_000])
async def test_reporter_survives_invalid_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, loop: str
) -> None:
    monkeypatch.setattr(reporter_module, "_AGAIN_S", 0.01)
    monkeypatch.setattr(reporter_module, "_ANSWER_WITHIN_S", 0.05)
    reports: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reports.append(await reader.readuntil())
        writer.write(answer)
        with suppress(OSError):
            await reader.read()  # until it has given up
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "sessions")
    async with running(loop, reporter_of(tmp_path / "sessions", Hand(500.0)).run()):
        await until(lambda: len(reports) >= 2)
    assert json.loads(reports[0]) == {"do": "report", "idle_s": 500.0, "locked": False, "inhibited": False}
    server.close()


async def test_logged_in_user_sees_the_state_and_can_pause(worker: Worker) -> None:
    shown = WorkerState.from_json(await worker.asked(do="state"))
    assert shown == STATE
    text = in_text(shown, f"unix:{worker.place}")
    assert "browser" not in text
    assert STATE.peers in text
    await worker.asked(**{"do": "pause", "for": "1h"})
    assert worker.pauses[0].at > time.time() + 3000
    await worker.asked(do="resume")
    assert not worker.pauses
    with pytest.raises(LooplineError, match="expected a time such as"):
        await worker.asked(**{"do": "pause", "for": "ages"})


async def test_other_users_are_refused(worker: Worker) -> None:
    worker.here.clear()
    for request in ({"do": "state"}, {"do": "pause", "for": "1h"}, {"do": "report", "idle_s": 500}):
        with pytest.raises(LooplineError, match="only those who are logged in"):
            await worker.asked(**request)
    assert not worker.pauses
    assert worker.idle_s() is None
    everybody: Callable[[int], bool] = people_but_tasks(lambda uid: True)
    assert (everybody(ME), everybody(ME + 1)) == (False, True), "tasks may run as the agent's own user"


@pytest.mark.parametrize(
    "line", [b"[1]\n", b"{\n", b'{"do": "report", "idle_s": -1}\n', b'{"do": "report", "idle_s": NaN}\n',
             b'{"do": "report", "idle_s": 1, "locked": "no"}\n', b'{"do": 7}\n']
)  # fmt: skip
async def test_invalid_request_is_refused(worker: Worker, line: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(worker.place)
    writer.write(line)
    assert "error" in json.loads(await reader.readuntil())
    writer.write(b"x" * 10_000)
    assert await reader.read() == b"", "an unterminated line ends the connection"
    writer.close()


async def test_connections_of_one_user_are_limited(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MOST_OF_A_USER", 1)
    reader, writer = await asyncio.open_unix_connection(worker.place)
    writer.write(b'{"do": "state"}\n')
    await reader.readuntil()
    with pytest.raises(LooplineError, match="does not answer"):
        await worker.asked(do="state")
    writer.close()


def test_report_ages_and_a_playing_film_counts_as_use() -> None:
    now = [100.0]
    reports = SessionReports(lambda: now[0])
    reports.note("a", 7, SessionReport(50.0))
    now[0] += 5
    assert (reports.idle_s(7, 1), reports.idle_s(7, 2), reports.idle_s(8, 1)) == (55.0, None, None)
    reports.note("b", 7, SessionReport(9.0, inhibited=True))
    assert reports.idle_s(7, 2) == 0.0
    reports.note("b", 7, SessionReport(9.0, inhibited=True, locked=True))
    assert reports.idle_s(7, 2) == 9.0
    reports.note("b", 7, SessionReport(None))
    assert reports.idle_s(7, 2) is None
    now[0] += 60
    assert reports.idle_s(7, 1) is None, "no report for a long time"
