"""SQL for the rows of every task: its text is made once, and values go to the driver directly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Dialect, Table, bindparam, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

Row = Iterable[Any]
"""Values in the order of a statement's parameters, encoded for the database."""


class Statement:
    """A statement whose text ``make`` builds for a dialect's name, once."""

    def __init__(self, make: Callable[[str], Executable]) -> None:
        self._make = make
        self._compiled: dict[str, Any] = {}

    def run(self, connection: Connection, rows: list[Row]) -> None:
        """Run the statement for these rows. SQLite's own errors are raised unchanged."""
        text = self._of(connection.dialect).string
        if connection.dialect.name == "sqlite":
            connection.connection.driver_connection.executemany(text, rows)  # type: ignore[union-attr]
        else:
            connection.exec_driver_sql(text, [tuple(row) for row in rows])

    def run_named(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Run the statement with values by the names of its parameters, beside those in its text."""
        compiled = self._of(connection.dialect)
        self.run(connection, [itemgetter(*compiled.positiontup)({**compiled.params, **row}) for row in rows])

    def _of(self, dialect: Dialect) -> Any:
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = self._make(dialect.name).compile(dialect=dialect)  # type: ignore[attr-defined]
        return self._compiled[dialect.name]


def insert_into(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT for this dialect."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes long to import, and SQLite does without

        return postgresql.insert(table)
    return sqlite.insert(table)


@cache
def upsert(table: Table) -> Statement:
    """Return a statement that inserts or replaces rows with a value for each column, in the table's order."""

    def make(dialect: str) -> Executable:
        statement, key = insert_into(table, dialect), list(table.primary_key)
        rest = {column.name: statement.excluded[column.name] for column in table.columns if column not in key}
        return statement.on_conflict_do_update(index_elements=key, set_=rest)

    return Statement(make)


def change(table: Table, fixed: Collection[str]) -> Statement:
    """Return a statement that changes existing rows: values of columns not ``fixed``, then the key.

    ``order_of_change`` gives that order.
    """
    names = [column.name for column in _changing(table, fixed)]
    here = [column == bindparam(f"of_{column.name}") for column in table.primary_key]
    statement = update(table).where(*here).values({name: bindparam(f"new_{name}") for name in names})
    return Statement(lambda _: statement)


def order_of_change(table: Table, fixed: Collection[str]) -> list[int]:
    """Return the places, in the table's order, of the values that ``change`` takes."""
    columns = list(table.columns)
    return [columns.index(column) for column in (*_changing(table, fixed), *table.primary_key)]


def _changing(table: Table, fixed: Collection[str]) -> list[Column[Any]]:
    return [column for column in table.columns if column.name not in fixed and not column.primary_key]
