"""The next release upgrades a database with live attempts; its log is replayed from the upgrade."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from sqlalchemy import func, select, update

from loopline_master.core.events import BATCH, MasterStarted
from loopline_master.core.scheduler import Scheduler
from loopline_master.store import open_store, replay, tables
from loopline_master.store.database import parse_url, writing
from loopline_master.store.replay import check
from tests.store.next_release import install_next_release
from tests.store.workload import log_of, relive


async def on(url, work):
    async with writing(parse_url(url), foreign_keys=False) as write:
        return await write(work)


def _starts(line: bytes) -> bool:
    return any(isinstance(event, MasterStarted) for event in BATCH.validate_json(line).events)


async def live_through_an_upgrade(url, folder):
    """Write a database with this release, then with the next one. Return the number of log entries before."""
    log = log_of(7, turns=40)
    starts = [place for place, line in enumerate(log) if _starts(line)]
    cut = starts[len(starts) // 2]
    assert 0 < cut < len(log) - 5
    async with open_store(url) as store:
        await relive(store, log[:cut])
    last = select(func.max(tables.event_log.c.seq))
    before = await on(url, lambda connection: connection.scalar(last))
    with pytest.MonkeyPatch.context() as patch:
        install_next_release(folder, patch)  # its migration changes rows in a way that a replay cannot
        async with open_store(url) as store:
            scheduler = Scheduler(await store.snapshot())
            for line in log[cut:]:
                batch = BATCH.validate_json(line)
                await store.commit(batch, scheduler.step(batch.events, batch.now))
    return before


@pytest.fixture(scope="module")
def upgraded_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upgraded")
    return folder / "loopline.db", asyncio.run(live_through_an_upgrade(f"sqlite:///{folder / 'loopline.db'}", folder))


@pytest.fixture
def upgraded(upgraded_once, sqlite_url, tmp_path, monkeypatch):
    """A copy of such a database for tampering, under the next release: (URL, entries before)."""
    file, before = upgraded_once
    shutil.copy(file, parse_url(sqlite_url).database)
    install_next_release(tmp_path, monkeypatch)
    return sqlite_url, before


async def test_log_is_replayed_from_the_upgrade(upgraded):
    url, _ = upgraded
    assert await check(url) == []
    changed = update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77)
    await on(url, lambda connection: connection.execute(changed))
    (found,) = await check(url)
    assert (found.table, found.key, found.stored) == ("workers", ("ant",), {"offered": 77})


async def test_replay_says_where_it_starts(upgraded, capsys):
    url, before = upgraded
    _, start = await replay.check_and_start(url)
    replay._say_start(start)
    assert f"after entry {before} of the log: only rows written since" in capsys.readouterr().out


async def test_whole_log_is_replayed_without_an_upgrade(sqlite_url):
    async with open_store(sqlite_url) as store:
        await relive(store, log_of(7, turns=5))
    assert await on(sqlite_url, lambda c: c.scalar(select(func.count()).select_from(tables.log_snapshots))) == 0
