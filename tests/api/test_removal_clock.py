"""A clock that was set forward removes nothing for a day."""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline_master.files import retention
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.files.retention import Retention
from loopline_master.history import forgetting
from loopline_master.history.forgetting import Forgetting
from loopline_master.http import auth
from tests.api.bench import running_master

DAY_S = 86400.0


class Times:
    wall, counted = 1_800_000_000.0, 5.0

    def passes(self, seconds: float) -> None:
        self.wall, self.counted = self.wall + seconds, self.counted + seconds


def clock_of(times: Times, after: float = 0.0) -> RemovalClock:
    return RemovalClock(after, lambda: times.wall, lambda: times.counted)


def test_forward_jump_counts_once_it_has_lasted_for_a_day() -> None:
    times = Times()
    now = clock_of(times)
    times.passes(10 * DAY_S)
    assert now() == times.wall
    times.wall += 365 * DAY_S
    assert now() == times.wall - 365 * DAY_S
    times.passes(DAY_S - 1)
    assert now() == times.wall - 365 * DAY_S
    times.passes(2)
    assert now() == times.wall


def test_clock_that_is_set_right_within_a_day_was_never_believed() -> None:
    times = Times()
    now = clock_of(times)
    times.wall += 365 * DAY_S
    now()
    times.passes(0.9 * DAY_S)
    times.wall -= 365 * DAY_S
    assert now() == times.wall
    times.wall += 365 * DAY_S
    now()
    times.passes(0.9 * DAY_S)
    assert now() == times.wall - 365 * DAY_S, "a second jump lasts for its own day"


def test_clock_that_is_set_back_is_believed_at_once() -> None:
    times = Times()
    now = clock_of(times)
    times.wall -= 400 * DAY_S
    assert now() == times.wall


def test_time_since_the_last_step_before_a_start_is_a_jump() -> None:
    times = Times()
    now = clock_of(times, after=times.wall - 100 * DAY_S)
    assert now() == times.wall - 100 * DAY_S
    times.passes(DAY_S + 1)
    assert now() == times.wall


async def test_wrong_clock_keeps_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_master(tmp_path) as master:
        await master.submit()
        wrong = SimpleNamespace(time=lambda: time.time() + 800 * DAY_S)
        master.parts[RemovalClock]._wall = wrong.time
        monkeypatch.setattr(auth, "time", wrong)
        await master.submit()
        assert len((await master.get("/audit-log"))["items"]) == 2


async def test_wrong_clock_removes_no_jobs_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, seen = list[float](), asyncio.Event()

    async def forget_jobs(self: Forgetting, now: float) -> int:
        limits.append(now)
        seen.set()
        return 0

    monkeypatch.setattr(Forgetting, "forget_jobs", forget_jobs)
    monkeypatch.setattr(forgetting, "FIRST_PRUNE_AFTER_S", 0.0)
    monkeypatch.setattr(forgetting, "PRUNE_EVERY_S", 0.05)
    async with running_master(tmp_path, file_grace_s=60.0) as master:
        wrong = SimpleNamespace(time=lambda: time.time() + 365 * DAY_S)
        master.parts[RemovalClock]._wall = wrong.time
        monkeypatch.setattr(retention, "time", wrong)
        monkeypatch.setattr(forgetting, "time", wrong)
        name = sha256(b"x").hexdigest()
        assert (await master.ask("PUT", f"/files/{name}", data=b"x")).status == 204
        found = await master.parts[Retention].prune(30 * DAY_S, delete=True)
        assert found.files == 0, "a job that names it may come"
        assert (await master.ask("HEAD", f"/files/{name}")).status == 200
        seen.clear()
        limits.clear()
        async with asyncio.timeout(60):
            await seen.wait()
    assert max(limits) < time.time() + DAY_S
