"""The event log convicts rows that were changed behind its back."""

import asyncio
import json

import pytest
from sqlalchemy import delete, update

from loopline_master.store import open_store, replay, tables
from loopline_master.store.database import parse_url, writing
from loopline_master.store.migrate import downgrade
from loopline_master.store.replay import Difference, check
from tests.store.workload import lived_through, relive


@pytest.fixture
def lived(sqlite_url):
    async def live():
        async with open_store(sqlite_url) as store:
            await relive(store, lived_through(7, turns=20).store.log)

    asyncio.run(live())
    return sqlite_url


def tamper(url, statement):
    async def change():
        async with writing(parse_url(url), foreign_keys=False) as write:
            await write(lambda connection: connection.execute(statement))

    asyncio.run(change())


@pytest.fixture
def verdict(monkeypatch, capsys):
    """Exit code and words of ``python -m loopline_master.store.replay``."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["replay", *arguments])
        code = replay.main()
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_rows_that_the_log_leads_to(lived, verdict):
    assert verdict(lived) == (0, "log and rows agree\n")
    assert verdict(parse_url(lived).database) == (0, "log and rows agree\n")


def test_a_changed_row(lived, verdict):
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


def test_a_row_too_few_and_a_row_too_many(lived):
    tamper(lived, delete(tables.specs).where(tables.specs.c.job == 1))
    (found,) = asyncio.run(check(lived))
    assert (found.table, found.key, found.stored) == ("specs", (1,), None)
    odd = {"job": 2, "predecessor": 1, "reason": "odd", "at": 1.0}
    tamper(lived, tables.exemptions.insert().values(**odd))
    assert Difference("exemptions", (2, 1, 1.0), odd, None) in asyncio.run(check(lived))


def test_what_cannot_be_read(tmp_path, verdict):
    code, said = verdict(str(tmp_path / "nothing.db"))
    assert code == 2
    assert "cannot be opened" in said
    assert not (tmp_path / "nothing.db").exists()


@pytest.fixture
def upgraded(sqlite_url):
    """Half of a life, an upgrade, and the other half; what the log says of the first is of a release that differs."""
    log = lived_through(7, turns=40).store.log
    half = max(at for at, line in enumerate(log) if b"master_started" in line)
    assert half > 10

    async def live():
        async with open_store(sqlite_url) as store:
            await relive(store, log[:half])
        await downgrade(parse_url(sqlite_url), "0008")
        async with open_store(sqlite_url) as store:
            await relive(store, log[half:])

    asyncio.run(live())
    tamper(sqlite_url, delete(tables.event_log).where(tables.event_log.c.seq < half // 2))
    return sqlite_url


def test_an_upgraded_database_is_replayed_from_the_upgrade_on(upgraded, verdict):
    code, said = verdict(upgraded)
    assert code == 0, said
    assert said.startswith("upgraded at ")
    tamper(upgraded, update(tables.workers).where(tables.workers.c.name == "ant").values(offered=77))
    assert [found.key for found in asyncio.run(check(upgraded))] == [("ant",)]
    tamper(upgraded, delete(tables.upgrades))
    assert len(asyncio.run(check(upgraded))) > 1, "from its beginning, this log does not lead to these rows"
