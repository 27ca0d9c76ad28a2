"""A master whose clock was ten days ahead and is corrected does not wait for ten days."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import Double, select

from loopline_master import app, engine
from loopline_master.core.events import MasterStarted, SchedulerSettings
from loopline_master.core.kernel import invariants
from loopline_master.core.scheduler import Scheduler
from loopline_master.settings import MasterSettings
from loopline_master.store import open_store
from loopline_master.store.past.clock import SQUEEZED_S, times_of
from loopline_master.store.replay import check
from loopline_master.store.tables import metadata
from loopline_shared.rest.times import seconds
from tests.api.bench import running_master, until
from tests.store.workload import log_of, relive

TEN_DAYS_S = 10 * 86400.0
NO_TIMES = {
    *(
        "size",
        "shown",
        "tag",
        "work",
        "work_done",
        "progress",
        "work_s",
        "work_accepted",
        "virtual",
        "used",
        "counted",
        "most_used",
        "longest",
        "term_s",
        "took_s",
        "budget_s",
        "limit",
        "idle_s",
        "usage",
        "share",
        "health",
    ),
    *("log_mean", "log_m2", "recorded", "spare_cpu", "expected_s", "waited_s", "wall_s", "cpu_s", "system_s"),
    *(
        "useful_cpu_s",
        "replicated_cpu_s",
        "wasted_cpu_s",
        "lost_cpu_s",
        "fetch_s",
        "frozen_s",
        "deliver_s",
        "accepted_s",
        "slowest_s",
    ),
    *("limit_s", "gang_limits_s", "gang_ran_s", "gang_allowed_s", "model_p50_s", "model_p90_s"),
}


def test_each_float_column_is_a_time_or_listed_as_another_quantity():
    for table in metadata.sorted_tables:
        times = {column.name for column in times_of(table)}
        fractions = {column.name for column in table.columns if isinstance(column.type, Double)}
        if times:
            assert fractions - times <= NO_TIMES, table.name
            assert not times & NO_TIMES, table.name


async def test_clock_correction_keeps_the_order_of_all_times(sqlite_url):
    async with open_store(sqlite_url) as store:
        await relive(store, log_of(7, turns=60))
        before, ahead = await times(store), (await store.snapshot()).grid.now
        lead_s = ahead / 2
        now = ahead - lead_s
        assert await store.set_clock_right(now) == lead_s
        after, snapshot = await times(store), await store.snapshot()
        assert snapshot.grid.now == pytest.approx(now)
        assert len(before) > 50, "enough times for a meaningful test"
        pairs = sorted(zip(before, after, strict=True))
        assert [new for _, new in pairs] == sorted(after), "the correction is monotonic"
        for old, new in pairs:
            assert (
                min(old, now - SQUEEZED_S) <= new <= now + 0.001
                if old <= ahead
                else new == pytest.approx(old - lead_s)
            )
        assert await store.set_clock_right(now) == 0.0
        scheduler = Scheduler(snapshot)
        scheduler.step([MasterStarted(SchedulerSettings())], now)
        invariants.check(scheduler.state)
    assert await check(sqlite_url) == []


async def times(store):
    """Return all times in the rows, in an order independent of their values."""

    def work(connection):
        found = []
        for table in metadata.sorted_tables:
            keys = [column for column in table.primary_key if not isinstance(column.type, Double)]
            for column in times_of(table):
                found += connection.scalars(select(column).where(column > 1.0).order_by(*keys)).all()
        return found

    return await store._read(work)


async def test_master_reports_the_right_time_after_a_correction(tmp_path, monkeypatch):
    wall = SimpleNamespace(ahead_s=TEN_DAYS_S)
    clock = SimpleNamespace(time=lambda: time.time() + wall.ahead_s, monotonic=time.monotonic)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "time", clock)
        async with running_master(tmp_path) as master:
            over = await master.submit()
            async with master.worker("w1"):
                await until(lambda: has_ended(master, over))
            waits = await master.submit()
    async with running_master(tmp_path) as master:
        jobs = [await master.get(f"/jobs/{job}") for job in (over, waits)]
        told = [job[name] for job in jobs for name in ("submitted_at", "started_at", "finished_at") if job[name]]
        assert all(seconds(at) <= time.time() + 1 for at in told)
        worker = master.parts[Scheduler].state.workers["w1"]
        assert worker.lease_until <= time.time() + master.parts[MasterSettings].scheduler.lease_s + 1
        async with master.worker("w1"):
            again = await master.submit()
            await until(lambda: has_ended(master, again))


async def has_ended(master, job):
    return (await master.get(f"/jobs/{job}"))["finished_at"] is not None


async def test_master_restarts_when_its_clock_is_set_back(tmp_path, monkeypatch):
    wall = SimpleNamespace(ahead_s=TEN_DAYS_S)
    clock = SimpleNamespace(time=lambda: time.time() + wall.ahead_s, monotonic=time.monotonic)
    monkeypatch.setattr(engine, "time", clock)
    monkeypatch.setattr(engine, "CLOCK_LOOK_EVERY_S", 0.01)
    starts, told_to_stop = [], asyncio.Event()

    def on_start(master, *, is_again):
        starts.append((is_again, master.parts[Scheduler].state.grid.now - time.time()))
        wall.ahead_s = 0.0
        if is_again:
            told_to_stop.set()

    settings = MasterSettings(data_dir=tmp_path, port=0)
    await asyncio.wait_for(app.keep_serving(settings, told_to_stop, on_start), 60)
    assert [is_again for is_again, _ in starts] == [False, True]
    assert starts[0][1] == pytest.approx(TEN_DAYS_S, abs=60)
    assert starts[1][1] == pytest.approx(0.0, abs=60)
