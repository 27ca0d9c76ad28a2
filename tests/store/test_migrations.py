"""The migrations lead to the very tables that the code uses, up and down, with rows in them."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select, text

from loopline_master.store import open_store
from loopline_master.store.database import parse_url, writing
from loopline_master.store.migrate import REVISION, config_for, downgrade, upgrade
from loopline_master.store.tables import metadata
from loopline_shared.errors import LooplineError
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep


async def on(url, work):
    async with writing(parse_url(url)) as write:
        return await write(work)


def described(connection: Connection) -> dict[tuple[str, str], list[str]]:
    """All there is to know of the tables, in the database's own words."""
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
    """With the conditions of partial ones as text."""
    return {**index, "dialect_options": {name: str(value) for name, value in index["dialect_options"].items()}}


async def test_they_make_the_tables_of_the_code(url):
    await on(url, metadata.create_all)
    wanted = await on(url, described)
    await on(url, metadata.drop_all)
    await upgrade(parse_url(url))
    assert await on(url, described) == wanted
    options = {"compare_type": True, "compare_server_default": True}
    assert await on(url, lambda c: compare_metadata(MigrationContext.configure(c, opts=options), metadata)) == []


async def test_a_filled_database_goes_down_and_up_again(url):
    async with open_store(url) as store:
        await keep(store, a_job(), a_task(), an_attempt(**ended()), a_worker())
    await downgrade(parse_url(url), "base")
    assert await on(url, lambda connection: inspect(connection).get_table_names()) == ["alembic_version"]
    async with open_store(url) as store:
        await keep(store, a_job(), a_task(), an_attempt(**ended()), a_worker())
        assert (await store.jobs.page()).items[0].id == 1
    async with open_store(url) as store:  # nothing to do this time
        assert (await store.jobs.page()).items[0].id == 1


@pytest.mark.long
async def test_every_step_can_be_taken_back(url):
    revisions = [step.revision for step in await on(url, scripts)]
    for revision in reversed(revisions):
        await upgrade(parse_url(url), revision)
        await downgrade(parse_url(url), "-1")
        await upgrade(parse_url(url), revision)


PLANNING = (
    *("gangs_came", "gang_limits_s", "gang_ran_s", "gang_allowed_s"),
    *("plan_cursor", "plan_cursor_job", "plan_again"),
)
"""Columns of the grid since 0010."""
OF_USERS = ("within", "used", "overdrawn", "looked_at")
"""Columns of jobs and of the grid since 0015."""
OF_TOKENS = ("expires_at", "used_at", "used_from")
"""Columns of the tokens since 0017."""
OF_ATTEMPTS = ("metrics", "slot", "phases")
"""Columns of the attempts since 0019 and 0027."""
OF_BYTES = ("spec_bytes",)
"""Columns of the jobs since 0020."""
OF_EXEMPTIONS = ("exempt_since",)
"""Columns of the jobs since 0022."""
OF_WORKERS = ("health", "quarantines", "quarantined_until", "quarantine_reason", "half_open", "drain_reason")
"""Columns of the workers, under these names since 0014 and 0023."""


async def test_rows_stay_as_they_are_where_tables_are_made_anew(url):
    def rows(connection, without=()):
        newer = (
            *("event_log", "upgrades", "gangs", "plans", "carriers", "users", "audit_log"),
            *("mastership", "uploads", "lives", "exemptions", "usage", "job_sums", "worker_sums"),
        )
        tables = [table for table in metadata.sorted_tables if table.name not in newer]
        known = {table.name: [column for column in table.c if column.name not in without] for table in tables}
        return {name: sorted(map(repr, connection.execute(select(*columns)))) for name, columns in known.items()}

    def rows_of_0006(connection):
        newer = (*OF_USERS, *PLANNING, *OF_WORKERS, *OF_TOKENS, *OF_ATTEMPTS, *OF_BYTES, *OF_EXEMPTIONS)
        return rows(connection, without=["took_down", "nodes", *newer])

    async with open_store(url) as store:
        await keep(store, a_job(), a_task(), an_attempt(**ended()), a_worker())
    before, old, tables = await on(url, rows), await on(url, rows_of_0006), await on(url, described)
    assert all(before[name] for name in ("jobs", "specs", "tasks", "attempts", "workers"))
    await downgrade(parse_url(url), "0006")
    assert await on(url, rows_of_0006) == old
    await upgrade(parse_url(url))
    assert (await on(url, rows), await on(url, described)) == (before, tables)
    async with open_store(url) as store:
        await keep(store, a_job(2), a_task(1, 2))
        assert len((await store.jobs.page()).items) == 2


async def test_there_is_one_line_of_history(sqlite_url):
    steps = await on(sqlite_url, scripts)
    assert [step.revision for step in reversed(steps)] == [f"{number:04}" for number in range(1, len(steps) + 1)]


async def test_a_new_database_is_of_the_latest_without_alembic(url):
    async with open_store(url):
        pass
    assert await on(url, lambda c: MigrationContext.configure(c).get_current_revision()) == REVISION
    assert (await on(url, scripts))[0].revision == REVISION


async def test_a_newer_database_is_refused(url):
    async with open_store(url):
        pass
    await on(url, lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(LooplineError, match=r"newer release of Loopline \(migration 9999\)") as caught:
        async with open_store(url):
            pass
    assert caught.value.code == "database_too_new"


def scripts(connection):
    return list(ScriptDirectory.from_config(config_for(connection)).walk_revisions())
