"""Brings a database to the tables of this release: at every start, in one transaction.

Most starts find them as they are, and a new database is given them at once: only one of an older release needs
Alembic, which is not even imported otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Connection, inspect, text

import loopline_migrations
from loopline_master.store.checkpoint import note_upgrade
from loopline_master.store.database.database import Database, is_sqlite, writing
from loopline_master.store.tables import metadata
from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from alembic.config import Config

REVISION = "0009"
"""The latest migration: what ``tables.metadata`` says."""


async def prepare(database: Database, url: URL) -> None:
    """All that an open database lacks. LooplineError where it is newer than this release."""
    found = await database.read(_revision)
    if found == REVISION:
        return
    if found is None:
        await database.write(_begin)
    else:
        await upgrade(url)


async def upgrade(url: URL, revision: str = "head") -> None:
    """LooplineError where the database is newer than this release."""
    from alembic import command

    await _migrate(url, partial(command.upgrade, revision=revision))


async def downgrade(url: URL, revision: str) -> None:
    """Back to what an older release knows (``base``: nothing at all). What only newer ones store is lost."""
    from alembic import command

    await _migrate(url, partial(command.downgrade, revision=revision))


def config_for(connection: Connection) -> Config:
    """Alembic's settings: where the scripts are, and the connection to run them on."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(loopline_migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables that are there; None if there are no tables.

    An empty string means tables without a revision, which Alembic did not make.
    """
    if not inspect(connection).get_table_names():
        return None
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return " ".join(connection.scalars(text("SELECT version_num FROM alembic_version")))


def _begin(connection: Connection) -> None:
    """A new database (tests hold it against what all migrations lead to)."""
    metadata.create_all(connection)
    connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION})


async def _migrate(url: URL, run: Callable[[Config], None]) -> None:
    def work(connection: Connection) -> None:
        config, before = config_for(connection), _heads(connection)
        _refuse_newer(before, config)
        run(config)
        if _heads(connection) == {REVISION} != before:
            note_upgrade(connection)
        if is_sqlite(url) and _heads(connection) != before:
            _check_foreign_keys(connection)

    # foreign keys would get in the way of making a table anew; they are checked afterwards
    async with writing(url, foreign_keys=False) as write:
        await write(work)


def _heads(connection: Connection) -> set[str]:
    from alembic.migration import MigrationContext

    return set(MigrationContext.configure(connection).get_current_heads())


def _refuse_newer(heads: set[str], config: Config) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    unknown = heads - known
    if unknown:
        raise LooplineError(
            "database_too_new",
            f"the database is of a newer release of Loopline (migration {', '.join(sorted(unknown))})",
            "install that release or a later one, or restore a backup from before its first start",
            status=503,
        )


def _check_foreign_keys(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise AssertionError(f"a migration left a row without its parent: {tuple(broken)}")
