"""Replay: the event log, stepped through a fresh scheduler, must lead to exactly the rows that are stored.

    loopline replay DATABASE

``--events`` writes the log itself, for the simulator to ask what if (loopline_simulator/whatif).

The database is only read, and its master may keep running.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Connection, Table, func, select

from loopline_master.core.events import BATCH
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.resources.limit import Limit
from loopline_master.store.database import Result, parse_url, reading
from loopline_master.store.history.forgotten_jobs import FORGOTTEN
from loopline_master.store.log_snapshots import LogSnapshot, as_line, oldest_snapshot
from loopline_master.store.migrate import check_current
from loopline_master.store.rows import Values, changed, late_rows
from loopline_master.store.tables import (
    attempts,
    carriers,
    checkpoint_accounts,
    checkpoints,
    energies,
    event_log,
    evidence,
    exemptions,
    gangs,
    grid,
    jobs,
    limits,
    plans,
    programs,
    removals,
    resumptions,
    specs,
    tasks,
    users,
    workers,
)
from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptState

_COMPARED = (
    grid,
    jobs,
    specs,
    tasks,
    attempts,
    workers,
    programs,
    gangs,
    plans,
    carriers,
    users,
    limits,
    checkpoints,
    resumptions,
    checkpoint_accounts,
    energies,
    exemptions,
    evidence,
)
_PROOFS = (exemptions, evidence)
_CHECKPOINTS = (checkpoints, resumptions, checkpoint_accounts)
_STREAM = {"yield_per": 1000}  # rows at a time in memory
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs from the log: ``stored`` and ``replayed`` hold its values, None for a missing row."""

    table: str
    key: Key
    stored: Values | None
    replayed: Values | None


def replay(connection: Connection) -> list[Difference]:
    """Return where rows and log disagree; an empty list is the proof.

    From a snapshot on (log_snapshots.py), only rows written since then are compared.
    """
    start = oldest_snapshot(connection)
    scheduler, memory = Scheduler(start.rows), _Memory(is_whole=start.rows is None)
    log = select(event_log.c.batch).where(event_log.c.seq > start.after).order_by(event_log.c.seq)
    for text in connection.execute(log.execution_options(**_STREAM)):
        batch = BATCH.validate_json(text.batch)
        memory.apply(scheduler.step(batch.events, batch.now))
    gone = set(connection.scalars(select(removals.c.job).where(removals.c.reason == FORGOTTEN)))  # partly
    found = (difference for table in _COMPARED for difference in memory.compare(connection, table))
    return [
        one for one in found if one.table not in (tasks.name, attempts.name, energies.name) or one.key[0] not in gone
    ]


def write_events(connection: Connection) -> None:
    """Write the log to stdout, one batch a line, until its end or until the reader closes the pipe.

    If the start of the log was deleted, the first line is the snapshot.
    """
    is_whole = connection.scalar(select(func.min(event_log.c.seq))) in (None, 1)
    start = LogSnapshot() if is_whole else oldest_snapshot(connection)
    log = select(event_log.c.batch).where(event_log.c.seq > start.after).order_by(event_log.c.seq)
    log = log.execution_options(**_STREAM)
    try:
        if not is_whole:
            sys.stdout.buffer.write(as_line(start))
        for row in connection.execute(log):
            sys.stdout.buffer.write(row.batch.encode() + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe: no error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def check(database: str) -> list[Difference]:
    """Replay the log of a SQLite file, of a master's data folder, or of a database URL."""
    return await _read(database, replay)


async def check_and_start(database: str) -> tuple[list[Difference], LogSnapshot]:
    """Replay the log as ``check`` does; also return the snapshot that it starts from."""
    return await _read(database, lambda connection: (replay(connection), oldest_snapshot(connection)))


async def _read(database: str, work: Callable[[Connection], Result]) -> Result:
    path = Path(database, "loopline.db") if Path(database).is_dir() else Path(database)
    if "://" not in database and not path.is_file():
        raise LooplineError(
            "no_database", f"there is no database {path}", "name a master's data folder or loopline.db"
        )
    file = f"sqlite:///{path.absolute().as_uri()}?mode=ro&uri=true"
    url = parse_url(database if "://" in database else file)

    def checked(connection: Connection) -> Result:
        check_current(connection)
        return work(connection)

    async with reading(url) as read:
        return await read(checked)


class _Memory:
    """The rows that the log leads to, by table and key: written as the writer writes them."""

    def __init__(self, *, is_whole: bool) -> None:
        """``is_whole``: the log is replayed from its beginning, and so leads to every stored row."""
        self._is_whole = is_whole
        self._rows: dict[Table, dict[Key, Values]] = {table: {} for table in _COMPARED}

    def apply(self, effects: Effects) -> None:
        for key in effects.forgotten:
            self._rows[programs].pop(key, None)
        for launch in effects.dropped(Gang):
            self._rows[gangs].pop(launch, None)
        for limit in effects.dropped(Limit):
            self._rows[limits].pop(limit, None)
        for saved in effects.dropped(SavedCheckpoint):
            self._rows[checkpoints].pop(saved, None)
        if gone := set(effects.forgotten_jobs):
            for table in (jobs, specs, tasks, attempts, plans, gangs, energies, *_CHECKPOINTS, *_PROOFS):
                self._rows[table] = {key: row for key, row in self._rows[table].items() if key[0] not in gone}
        for name in effects.gone:
            self._rows[workers].pop((name,), None)
            self._rows[carriers].pop((name,), None)
        for mapper, entities in changed(effects):
            rows = mapper.values(entities)
            self._rows[mapper.table].update((_key(mapper.table, row), row) for row in rows)
        for late in late_rows(effects):
            self._end_late(late)

    def compare(self, connection: Connection, table: Table) -> list[Difference]:
        replayed, differences = dict(self._rows[table]), []
        for row in connection.execute(select(table).execution_options(**_STREAM)):
            stored = dict(row._mapping)
            key = _key(table, stored)
            expected = replayed.pop(key, None)
            if stored != expected and (expected is not None or self._is_whole):
                differences.append(_difference(table, key, stored, expected))
        return differences + [Difference(table.name, key, None, row) for key, row in replayed.items()]

    def _end_late(self, late: Values) -> None:
        row = self._rows[attempts].get((late["of_job"], late["of_task"], late["of_number"]))
        if row is not None and row["worker"] == late["of_worker"] and row["state"] == AttemptState.LOST:
            row.update((name, value) for name, value in late.items() if name in row)


def _key(table: Table, row: Values) -> Key:
    return tuple(row[column.name] for column in table.primary_key)


def _difference(table: Table, key: Key, stored: Values, replayed: Values | None) -> Difference:
    if replayed is None:
        return Difference(table.name, key, stored, None)
    names = [name for name, value in stored.items() if value != replayed[name]]
    return Difference(
        table.name, key, {name: stored[name] for name in names}, {name: replayed[name] for name in names}
    )


def _say_start(start: LogSnapshot) -> None:
    if start.rows is not None:
        when = datetime.fromtimestamp(start.at, UTC).isoformat(" ", "seconds")
        print(f"from the snapshot of {when}, after entry {start.after} of the log: only rows written since are")
        print("compared: the log before is of another release or of the time before a restore, or it is not kept")


def main() -> int:
    """Return the exit code: 0 if log and rows agree, 1 if they differ, 2 if the database cannot be read."""
    parser = argparse.ArgumentParser(prog="loopline replay", description="Compare stored rows with the event log.")
    parser.add_argument("database", help="a master's data folder, its loopline.db, or a database URL")
    parser.add_argument("--json", action="store_true", help="differences as a JSON list")
    parser.add_argument("--events", action="store_true", help="write the log itself, a line of JSON for each step")
    chosen = parser.parse_args()
    try:
        if chosen.events:
            asyncio.run(_read(chosen.database, write_events))
            return 0
        differences, start = asyncio.run(check_and_start(chosen.database))
    except LooplineError as error:
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return 2
    if chosen.json:
        print(to_json(differences, bytes_mode="base64").decode())
    else:
        _say_start(start)
        print(*differences, f"{len(differences)} rows differ" if differences else "log and rows agree", sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
