"""Migrations: bring a database to the tables of this release: at every start, in one transaction.

Most starts find them as they are, and a new database is given them at once: only one of an older release needs
Alembic, which is not even imported otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Connection, inspect, text

import loopline_migrations
from loopline_master.store.copies import copy_database
from loopline_master.store.database import Database, is_sqlite, writing
from loopline_master.store.log_snapshots import restart_log
from loopline_master.store.past.lives import begin_life
from loopline_master.store.tables import metadata
from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from alembic.config import Config

REVISION = "0001"
"""The latest migration: it leads to the tables of ``tables.metadata``."""

SCRIPTS = Path(loopline_migrations.__file__).parent
"""Alembic's folder: env.py and versions/."""


async def prepare(database: Database, url: URL, *, is_new: bool = True) -> None:
    """Bring an open database to this release. Raises LooplineError if it is newer, or empty and not ``is_new``.

    A SQLite file of an older release is copied first: with the copy, the older release can go on.
    """
    found = await database.read(_revision)
    if found == REVISION:
        return
    if found is None and not is_new:
        raise database_lost("has no tables")
    if found is None:
        await database.write(_begin)
    else:
        if is_sqlite(url) and "" < found < REVISION:
            file = Path(url.database or "")
            await asyncio.to_thread(copy_database, file, file.with_name(f"{file.name}.before-{REVISION}"))
        await upgrade(url)


async def upgrade(url: URL, revision: str = "head") -> None:
    """Raises LooplineError if the database is newer than this release."""
    from alembic import command

    await _migrate(url, partial(command.upgrade, revision=revision))


async def downgrade(url: URL, revision: str) -> None:
    """Bring the database back to an older release (``base``: empty). Columns that only newer ones have are lost."""
    from alembic import command

    await _migrate(url, partial(command.downgrade, revision=revision))


def config_for(connection: Connection) -> Config:
    """Return Alembic's settings: the folder of the scripts, and the connection to run them on."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def database_lost(what: str) -> LooplineError:
    """Return the error that says so of a master's database."""
    hint = "restore a backup (`loopline restore`); to begin empty, name another --data-dir, or move the folder away"
    return LooplineError("database_lost", f"a master has worked in this folder, but its database {what}", hint)


def check_current(connection: Connection) -> None:
    """Raises LooplineError if the tables are of another release: a program that only reads cannot migrate them."""
    found = _revision(connection)
    if found == REVISION:
        return
    if found is None or found == "":
        raise LooplineError("no_database", "this is no database of a Loopline master", "name its loopline.db")
    if not found < REVISION:
        raise _too_new(found)
    raise LooplineError(
        "database_too_old",
        f"the database is of an older release of Loopline (migration {found}; this one reads {REVISION})",
        "start a master of this release on it (or on a copy), which migrates it; or read it with the older release",
    )


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables; None if the database is empty, and "" if Alembic did not make its tables."""
    if not inspect(connection).get_table_names():
        return None
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return " ".join(connection.scalars(text("SELECT version_num FROM alembic_version")))


def _begin(connection: Connection) -> None:
    """Create the tables of a new database. Tests compare them with the result of all migrations."""
    metadata.create_all(connection, checkfirst=False)
    begin_life(connection)
    connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION})


async def _migrate(url: URL, run: Callable[[Config], None]) -> None:
    def work(connection: Connection) -> None:
        config, before = config_for(connection), _heads(connection)
        _refuse_newer(before, config)
        run(config)
        if _heads(connection) == {REVISION} != before:
            restart_log(connection)
        if is_sqlite(url) and _heads(connection) != before:
            _check_foreign_keys(connection)

    # foreign keys would block the rebuild of a table; they are checked afterwards
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
        raise _too_new(", ".join(sorted(unknown)))


def _too_new(revision: str) -> LooplineError:
    return LooplineError(
        "database_too_new",
        f"the database is of a newer release of Loopline (migration {revision})",
        "install that release or a later one, or restore a backup from before its first start",
        status=503,
    )


def _check_foreign_keys(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise AssertionError(f"a migration left a row without its parent: {tuple(broken)}")
