"""Migrations, up and down and with rows, lead to the tables that the code uses.

So far there is only the baseline; upgrades are tested with a temporary second migration.
"""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select, text

from loopline_master.store import migrate, open_store
from loopline_master.store.database import parse_url, writing
from loopline_master.store.migrate import config_for, downgrade, upgrade
from loopline_master.store.tables import metadata
from loopline_shared.errors import LooplineError
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep
from tests.store.next_release import install_next_release


async def on(url, work):
    async with writing(parse_url(url)) as write:
        return await write(work)


def described(connection: Connection) -> dict[tuple[str, str], list[str]]:
    """Return the database's own description of its tables."""
    found = inspect(connection)
    tables = [name for name in found.get_table_names() if name != "alembic_version"]
    asked = {
        "columns": found.get_columns,
        "key": lambda table: [found.get_pk_constraint(table)],
        "foreign keys": found.get_foreign_keys,
        "unique": found.get_unique_constraints,
        "checks": found.get_check_constraints,
        "indexes": lambda table: [_plain(index) for index in found.get_indexes(table)],
        "options": lambda table: [found.get_table_options(table)],
    }
    return {(table, fact): sorted(map(repr, ask(table))) for table in tables for fact, ask in asked.items()}


def _plain(index):
    """Return an index with the conditions of partial ones as text."""
    return {**index, "dialect_options": {name: str(value) for name, value in index["dialect_options"].items()}}


def rows(connection: Connection) -> dict[str, list[str]]:
    tables = [table for table in metadata.sorted_tables if table.name not in {"event_log", "log_snapshots"}]
    return {table.name: sorted(map(repr, connection.execute(select(*table.c)))) for table in tables}


async def test_migrations_create_the_tables_of_the_code(url):
    await on(url, metadata.create_all)
    wanted = await on(url, described)
    await on(url, metadata.drop_all)
    await upgrade(parse_url(url))
    assert await on(url, described) == wanted
    options = {"compare_type": True, "compare_server_default": True}
    assert await on(url, lambda c: compare_metadata(MigrationContext.configure(c, opts=options), metadata)) == []


async def test_filled_database_migrates_down_to_empty_and_up_again(url):
    async with open_store(url) as store:
        await keep(store, a_job(), a_task(), an_attempt(**ended()), a_worker())
    await downgrade(parse_url(url), "base")
    assert await on(url, lambda connection: inspect(connection).get_table_names()) == ["alembic_version"]
    async with open_store(url) as store:
        await keep(store, a_job(), a_task(), an_attempt(**ended()), a_worker())
        assert (await store.jobs.page()).items[0].id == 1
    async with open_store(url) as store:  # already migrated
        assert (await store.jobs.page()).items[0].id == 1


async def test_next_release_keeps_every_row_up_and_down(url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_store(url) as store:
        await keep(store, a_job(), a_task(), an_attempt(**ended()), a_worker(work_s=1.0))
    before, tables = await on(url, rows), await on(url, described)
    assert all(before[name] for name in ("jobs", "specs", "tasks", "attempts", "workers"))
    install_next_release(tmp_path, monkeypatch)
    async with open_store(url) as store:
        await keep(store, a_job(2), a_task(1, 2))
        assert len((await store.jobs.page()).items) == 2
    assert await on(url, lambda c: c.execute(text("SELECT name, shade, work_s FROM workers")).all()) == [
        ("ant", "ant", 1001.0)
    ]
    await on(url, lambda c: [c.execute(text(f"DELETE FROM {table} WHERE job = 2")) for table in ("tasks", "specs")])
    await on(url, lambda c: c.execute(text("DELETE FROM jobs WHERE id = 2")))
    await downgrade(parse_url(url), "0001")
    after = await on(url, rows)
    assert {name: after[name] for name in ("jobs", "specs", "tasks", "attempts", "workers")} == {
        name: before[name] for name in ("jobs", "specs", "tasks", "attempts", "workers")
    }
    assert await on(url, described) == tables


async def test_migration_history_is_linear_and_ends_with_the_current_revision(url):
    steps = await on(url, scripts)
    assert [step.revision for step in reversed(steps)] == [f"{number:04}" for number in range(1, len(steps) + 1)]
    async with open_store(url):
        pass
    assert await on(url, lambda c: MigrationContext.configure(c).get_current_revision()) == migrate.REVISION
    assert steps[0].revision == migrate.REVISION


async def test_newer_database_is_refused(url, tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch:
        install_next_release(tmp_path, patch)
        async with open_store(url):
            pass
    with pytest.raises(LooplineError, match=r"newer release of Loopline \(migration 0002\)") as caught:
        async with open_store(url):
            pass
    assert caught.value.code == "database_too_new"


def scripts(connection):
    return list(ScriptDirectory.from_config(config_for(connection)).walk_revisions())
