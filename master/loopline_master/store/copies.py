"""Copies of a SQLite database, made while its master runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import URL

from loopline_master.store.database import StoreBroken, explained
from loopline_shared.disk.durable_files import sync_folder


def copy_database(source: Path, target: Path) -> None:
    """Copy one state of the whole database; the copy is checked before it gets its name. Raises StoreBroken."""
    part = target.with_name(f"{target.name}.part")
    with explained("writing to", URL.create("sqlite", database=str(part))):
        part.unlink(missing_ok=True)
        part.touch(0o600)
        reader = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
        with closing(reader), closing(sqlite3.connect(part)) as writer:
            reader.backup(writer)
            found = writer.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        part.unlink()
        hint = "restore it from a backup"
        raise StoreBroken("store_broken", f"the database {source} is damaged: {found}", hint, status=503)
    part.replace(target)
    sync_folder(target.parent)
