"""A database of the release before, with attempts under way, is upgraded; its log is replayed from there."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from sqlalchemy import Connection, func, select, text, update

from loopline_master.core.events import BATCH, MasterStarted, SchedulerSettings
from loopline_master.core.scheduler import Scheduler
from loopline_master.store import open_store, replay, tables
from loopline_master.store.database import parse_url, writing
from loopline_master.store.migrate import downgrade, upgrade
from loopline_master.store.replay import check
from loopline_shared.model import AttemptState, JobState
from tests.store.examples import a_job, a_task, a_worker, an_attempt, keep
from tests.store.workload import log_of, relive

OLD = [("dispatched", False, False), ("dispatched", True, False), ("running", False, False), ("running", False, True)]
OLD += [("cancelling", False, False), ("cancelling", True, False), ("cancelling", False, False)]
NEW = ["dispatched", "prefetched", "running", "frozen", "cancelling", "retracting", "cancelling"]


async def on(url, work):
    async with writing(parse_url(url), foreign_keys=False) as write:
        return await write(work)


async def test_flags_become_states_and_flags_again(url):
    def old_rows(connection: Connection):
        return [
            tuple(row)
            for row in connection.execute(text("SELECT state, waiting, frozen FROM attempts ORDER BY task"))
        ]

    def states(connection: Connection):
        return [str(state) for state in connection.scalars(select(tables.attempts.c.state).order_by("task"))]

    async with open_store(url) as store:
        await keep(store, a_job(tasks=7), a_worker())
        for number, state in enumerate(NEW, start=1):
            await keep(store, a_task(number), an_attempt(number, state=AttemptState(state)), new=False)
    await downgrade(parse_url(url), "0007")
    assert [(state, bool(waits), bool(frozen)) for state, waits, frozen in await on(url, old_rows)] == OLD
    await upgrade(parse_url(url))
    assert await on(url, states) == NEW


async def test_who_was_let_past_before_the_upgrade_is_excused_after_it(url):
    """So is who passes a job that was paused then and still is; an audited job's excuses are not needed any more."""
    released, first = {"released_at": 250.0}, a_job(1, paused=True, state=JobState.QUEUED)
    async with open_store(url) as store:
        await keep(store, first, a_job(2, **released), a_job(3, departure=9), a_job(4))
        assert (await store.snapshot()).grid.now == 250.0
    await downgrade(parse_url(url), "0021")
    pairs = [(2, 1, "stalled", 250.0), (3, 1, "paused", 240.0)]
    insert = text("INSERT INTO exemptions (job, predecessor, reason, at) VALUES (:job, :past, :why, :at)")
    rows = [dict(zip(("job", "past", "why", "at"), pair, strict=True)) for pair in pairs]
    await on(url, lambda connection: connection.execute(insert, rows))
    async with open_store(url) as store:
        query = select(tables.exemptions).order_by("reason")
        times = [tuple(row) for row in await on(url, lambda connection: connection.execute(query).all())]
        assert times == [(1, 250.0, "paused", None), (1, 250.0, "stalled", 250.0)]
        ends = {"state": JobState.SUCCEEDED, "finished_at": 300.0}
        await keep(store, a_job(2, departure=10, **released, **ends), new=False, completed=[2])
        await keep(store, a_job(4, departure=11, released_at=290.0, **ends), new=False, completed=[4])
        assert (await store.passings(SchedulerSettings())).excused == {"paused": 2}


def _starts(line: bytes) -> bool:
    return any(isinstance(event, MasterStarted) for event in BATCH.validate_json(line).events)


async def gone_on_with(url):
    """A database that the release before has written, and that is gone on with. Return its entries before."""
    log = log_of(7, turns=40)
    starts = [place for place, line in enumerate(log) if _starts(line)]
    cut = starts[len(starts) // 2]
    assert 0 < cut < len(log) - 5
    async with open_store(url) as store:
        await relive(store, log[:cut])
    last = select(func.max(tables.event_log.c.seq))
    before = await on(url, lambda connection: connection.scalar(last))
    await downgrade(parse_url(url), "0007")
    foreign = {"work_s": 123.0, "work_done": 45.0}  # as no replay by this release would have it
    await on(url, lambda connection: connection.execute(update(tables.workers).values(**foreign)))
    async with open_store(url) as store:
        scheduler = Scheduler(await store.snapshot())
        for line in log[cut:]:
            batch = BATCH.validate_json(line)
            await store.commit(batch, scheduler.step(batch.events, batch.now))
    return before


@pytest.fixture(scope="module")
def upgraded_once(tmp_path_factory):
    file = tmp_path_factory.mktemp("upgraded") / "loopline.db"
    return file, asyncio.run(gone_on_with(f"sqlite:///{file}"))


@pytest.fixture
def upgraded(upgraded_once, sqlite_url):
    """A copy of such a database, to be tampered with: (its URL, entries before)."""
    file, before = upgraded_once
    shutil.copy(file, parse_url(sqlite_url).database)
    return sqlite_url, before


async def test_the_log_is_replayed_from_the_upgrade(upgraded):
    url, _ = upgraded
    assert await check(url) == []
    changed = update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77)
    await on(url, lambda connection: connection.execute(changed))
    (found,) = await check(url)
    assert (found.table, found.key, found.stored) == ("workers", ("ant",), {"offered": 77})


async def test_it_says_what_it_compares(upgraded, capsys):
    url, before = upgraded
    _, start = await replay.check_and_start(url)
    replay._say_start(start)
    assert f"after entry {before} of the log: only rows written since" in capsys.readouterr().out


async def test_without_an_upgrade_the_whole_log_is_replayed(sqlite_url):
    async with open_store(sqlite_url) as store:
        await relive(store, log_of(7, turns=5))
    assert await on(sqlite_url, lambda c: c.scalar(select(func.count()).select_from(tables.upgrades))) == 0


async def test_a_worker_stays_in_quarantine_under_the_new_words(url):
    old = "SELECT standing, probations, probation_until, probation_reason, on_trial FROM workers"

    async with open_store(url) as store:
        barred = {"health": -1.5, "quarantines": 2, "quarantined_until": 9e9, "quarantine_reason": "task 1.1 failed"}
        await keep(store, a_worker("ant", **barred), a_worker("bee", half_open=True))
    await downgrade(parse_url(url), "0013")
    rows = await on(url, lambda connection: sorted(map(tuple, connection.execute(text(old))), key=str))
    assert [row[:4] for row in rows] == [(-1.5, 2, 9e9, "task 1.1 failed"), (0.0, 0, None, "")]
    assert [bool(row[4]) for row in rows] == [False, True]
    async with open_store(url) as store:
        workers = {worker.name: worker for worker in (await store.snapshot()).workers}
    assert {name: getattr(workers["ant"], name) for name in barred} == barred
    assert workers["bee"].half_open
