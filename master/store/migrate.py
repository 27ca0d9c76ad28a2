"""Brings a database to the tables of this release: at every start, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection

import migrations
from master.store.database import is_sqlite, writing
from shared.errors import LooplineError


async def upgrade(url: URL, revision: str = "head") -> None:
    """LooplineError where the database is newer than this release."""
    await _migrate(url, partial(command.upgrade, revision=revision))


async def downgrade(url: URL, revision: str) -> None:
    """Back to what an older release knows (``base``: nothing at all). What only newer ones store is lost."""
    await _migrate(url, partial(command.downgrade, revision=revision))


def config_for(connection: Connection) -> Config:
    """Alembic's settings: where the scripts are, and the connection to run them on."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


async def _migrate(url: URL, run: Callable[[Config], None]) -> None:
    def work(connection: Connection) -> None:
        config, before = config_for(connection), _heads(connection)
        _refuse_newer(before, config)
        run(config)
        if is_sqlite(url) and _heads(connection) != before:
            _check_foreign_keys(connection)

    # foreign keys would get in the way of making a table anew; they are checked afterwards
    async with writing(url, foreign_keys=False) as write:
        await write(work)


def _heads(connection: Connection) -> set[str]:
    return set(MigrationContext.configure(connection).get_current_heads())


def _refuse_newer(heads: set[str], config: Config) -> None:
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
