"""Errors of the database, in terms on which the person who runs the master can act."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from loopline_shared.errors import LooplineError

_CAUSES = (  # (text of the database's error, its meaning, what to do)
    ("disk is full", "the disk is full", "free some space, then start the master again"),
    ("No space left", "the disk is full", "free some space, then start the master again"),
    ("disk I/O error", "the disk does not take what is written", "check the disk, its quota and file size limits"),
    ("malformed", "the database file is damaged", "restore it from a backup"),
    ("not a database", "the file is not a Loopline database", "name another file, or move this one away"),
    ("readonly database", "the database may not be written", "give the master's user the right to write it"),
    ("unable to open", "the file cannot be opened", "check that its folder exists and may be written"),
    ("No such file", "the file cannot be opened", "check that its folder exists and may be written"),
)
_UNKNOWN = ("it does not do what it was asked to", "see what it says")


class StoreBroken(LooplineError):  # noqa: N818 (it is a state, and an error only for the request at hand)
    """The database failed. Memory may be ahead of it: the master must stop, and start again from disk."""


Doing = Literal["reading", "writing to"]


@contextmanager
def explained(doing: Doing, database: URL) -> Iterator[None]:
    """Turn all errors of the database into StoreBroken."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        said = str(error.orig if isinstance(error, DBAPIError) else error).strip() or type(error).__name__
        meaning, hint = next(((means, do) for sign, means, do in _CAUSES if sign in said), _UNKNOWN)
        message = f"{doing} the database failed: {meaning} ({database.render_as_string()}: {said})"
        raise StoreBroken("store_broken", message, hint, status=503) from error
