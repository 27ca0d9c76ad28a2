"""Replay of the event log detects rows changed outside of it."""

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from copy import deepcopy

import pytest
from sqlalchemy import delete, func, select, text, update

from loopline_master.core.events import BATCH, SnapshotWritten
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.store import open_store, replay, tables
from loopline_master.store.database import is_sqlite, parse_url, writing
from loopline_master.store.replay import Difference, check
from loopline_shared.model import AttemptId
from loopline_simulator.whatif.inputs import batches
from loopline_simulator.whatif.recording import record
from loopline_simulator.whatif.replay_world import WhatIfWorld
from loopline_simulator.whatif.tally import Tally
from tests.scheduling.driver import Grid
from tests.store.next_release import install_next_release
from tests.store.workload import log_of, relive


@pytest.fixture(scope="module")
def lived_once(tmp_path_factory):
    file = tmp_path_factory.mktemp("lived") / "loopline.db"

    async def live():
        async with open_store(f"sqlite:///{file}") as store:
            await relive(store, log_of(7, turns=20))

    asyncio.run(live())
    return file


@pytest.fixture
def lived(lived_once, sqlite_url):
    """A private copy of a life of twenty turns, for tampering."""
    shutil.copy(lived_once, parse_url(sqlite_url).database)
    return sqlite_url


def tamper(url, statement):
    async def change():
        async with writing(parse_url(url), foreign_keys=False) as write:
            await write(lambda connection: connection.execute(statement))

    asyncio.run(change())


@pytest.fixture
def verdict(monkeypatch, capsys):
    """Return exit code and output of ``python -m loopline_master.store.replay``."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["replay", *arguments])
        code = replay.main()
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_data_folder_stands_for_its_database(lived_once):
    assert asyncio.run(check(str(lived_once.parent))) == asyncio.run(check(str(lived_once))) == []


def test_unchanged_rows_match_the_log(lived, verdict):
    assert verdict(lived) == (0, "log and rows agree\n")
    assert verdict(parse_url(lived).database) == (0, "log and rows agree\n")


def test_changed_row_is_detected(lived, verdict):
    tamper(lived, update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77))
    (found,) = asyncio.run(check(lived))
    assert (found.table, found.key, found.stored) == ("workers", ("ant",), {"offered": 77})
    assert found.replayed is not None
    code, said = verdict(lived)
    assert code == 1
    assert "77" in said
    assert said.endswith("1 rows differ\n")
    (difference,) = json.loads(verdict(lived, "--json")[1])
    assert (difference["table"], difference["stored"]) == ("workers", {"offered": 77})


def test_missing_and_additional_rows_are_detected(lived):
    tamper(lived, delete(tables.specs).where(tables.specs.c.job == 1))
    (found,) = asyncio.run(check(lived))
    assert (found.table, found.key, found.stored) == ("specs", (1,), None)
    odd = {"job": 1, "since": 1.0, "reason": "odd", "until": None}
    tamper(lived, tables.exemptions.insert().values(**odd))
    assert Difference("exemptions", (1, 1.0, "odd"), odd, None) in asyncio.run(check(lived))


def test_missing_database_is_reported(tmp_path, verdict):
    for nothing, file in ((tmp_path / "nothing.db", "nothing.db"), (tmp_path, "loopline.db")):
        code, said = verdict(str(nothing))
        assert code == 2
        assert f"there is no database {tmp_path / file}\n" in said
    assert not (tmp_path / "nothing.db").exists()


def test_database_of_another_release_is_refused_with_a_hint(lived, verdict, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        install_next_release(tmp_path, patch)
        code, said = verdict(lived)
    assert code == 2
    assert "of an older release of Loopline (migration 0001" in said
    assert "start a master of this release on it" in said
    tamper(lived, text("UPDATE alembic_version SET version_num = '9999'"))
    code, said = verdict(lived, "--events")
    assert code == 2
    assert "newer release" in said


@pytest.fixture
def upgraded(sqlite_url, tmp_path, monkeypatch):
    """Half of a life, an upgrade, and the other half; the first half of the log is of a different release."""
    log = log_of(7, turns=40)
    half = max(at for at, line in enumerate(log) if b"master_started" in line)
    assert half > 10

    async def live():
        async with open_store(sqlite_url) as store:
            await relive(store, log[:half])
        install_next_release(tmp_path, monkeypatch)
        async with open_store(sqlite_url) as store:
            await relive(store, log[half:])

    asyncio.run(live())
    tamper(sqlite_url, delete(tables.event_log).where(tables.event_log.c.seq < half // 2))
    return sqlite_url


def test_upgraded_database_is_replayed_from_the_upgrade(upgraded, verdict):
    code, said = verdict(upgraded)
    assert code == 0, said
    assert said.startswith("from the snapshot of ")
    tamper(upgraded, update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77))
    assert [found.key for found in asyncio.run(check(upgraded))] == [("ant",)]
    tamper(upgraded, delete(tables.log_snapshots))
    assert len(asyncio.run(check(upgraded))) > 1, "replayed from its start, this log gives other rows"


@pytest.fixture(scope="module")
def bounded_once(tmp_path_factory):
    log, file = log_of(7, turns=40), tmp_path_factory.mktemp("bounded") / "loopline.db"

    async def live():
        gone = 0
        async with open_store(f"sqlite:///{file}") as store:
            for line in log:
                batch = BATCH.validate_json(line)
                if b"master_started" in line:
                    await store.begin_log(1e-6, batch.now)
                    gone += await store.forget_log(1e-6, batch.now)
                    scheduler = Scheduler(await store.snapshot())
                await store.commit(batch, scheduler.step(batch.events, batch.now))
        return gone

    return file, asyncio.run(live()), len(log)


@pytest.fixture
def bounded(bounded_once, sqlite_url):
    """A life whose starts trim the log: (URL of a copy, entries removed, entries)."""
    file, *counts = bounded_once
    shutil.copy(file, parse_url(sqlite_url).database)
    return sqlite_url, *counts


def test_log_without_its_beginning_gives_the_same_rows(bounded, verdict):
    url, gone, entries = bounded
    assert 0 < gone < entries
    with closing(sqlite3.connect(parse_url(url).database)) as connection:
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        assert free < 10  # pages freed by the last commits
    code, said = verdict(url)
    assert code == 0, said
    tamper(url, update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77))
    assert [found.key for found in asyncio.run(check(url))] == [("ant",)]


def test_what_if_starts_at_the_beginning_of_the_log(bounded, capfdbinary):
    url, gone, entries = bounded
    assert asyncio.run(replay._read(url, replay.write_events)) is None
    read = list(batches(capfdbinary.readouterr().out.splitlines(keepends=True)))
    assert isinstance(read[0], Snapshot)
    recording = record(read)
    assert 1 < len(read) <= 1 + entries - gone
    assert not recording.tally.jobs.keys() & {job.id for job in read[0].jobs}


async def test_recent_log_is_not_trimmed(sqlite_url):
    log = log_of(7, turns=20)
    now = BATCH.validate_json(log[-1]).now
    async with open_store(sqlite_url) as store:
        await relive(store, log)
        assert not await store.is_snapshot_due(90 * 86400.0, now)
        await store.begin_log(90 * 86400.0, now)
        assert await store.forget_log(90 * 86400.0, now) == 0
        read = store._read
        count = select(func.count()).select_from(tables.log_snapshots)
        assert await read(lambda connection: connection.scalar(count)) == 0
        assert await read(lambda connection: connection.scalar(text("PRAGMA auto_vacuum"))) == 2


def test_log_trimmed_while_the_master_runs_gives_the_same_rows(url, verdict):
    """Old entries are removed in small steps; what-if reads no entry before the snapshot."""
    log = log_of(15, turns=40)

    async def live():
        gone, scheduler = [], Scheduler()
        async with open_store(url) as store:
            for number, line in enumerate(log):
                batch = BATCH.validate_json(line)
                if b"master_started" in line:
                    scheduler = Scheduler(await store.snapshot())
                elif number % 7 == 0 and number < 2 * len(log) / 3:
                    batch.events.insert(0, scheduler.snapshot_event())
                await store.commit(batch, scheduler.step(batch.events, batch.now))
                gone.append(await store.forget_log(1e-6, batch.now + 1.0, most=3))
        return gone

    gone = asyncio.run(live())
    assert max(gone) == 3
    assert len(log) / 4 < sum(gone) < 3 * len(log) / 4
    if is_sqlite(parse_url(url)):
        with closing(sqlite3.connect(parse_url(url).database)) as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            assert free < 20
    code, said = verdict(url)
    assert code == 0, said
    _, first, *_ = batches(verdict(url, "--events")[1].encode().splitlines(keepends=True))
    assert isinstance(first.events[0], SnapshotWritten)
    tamper(url, update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77))
    assert [found.key for found in asyncio.run(check(url))] == [("ant",)]


def test_what_if_starts_with_the_connected_workers():
    grid = Grid(policy="fair")
    grid.workers("ant", "bee")
    grid.leave("bee")
    start, before = deepcopy(grid.store.snapshot()), len(grid.store.log)
    grid.step(grid.scheduler.snapshot_event())
    job = grid.submit(size=5.0)
    grid.now += 5.0
    grid.end(AttemptId(job, 1, 1), wall_s=5.0)
    recording = record([start, *map(BATCH.validate_json, grid.store.log[before:])])
    assert recording.settings.policy == "fair"
    assert recording.facts.keys() == {"ant"}
    tally = Tally()
    WhatIfWorld(recording, tally).run()
    (again,) = tally.jobs.values()
    assert again.finished_at == 5.0
