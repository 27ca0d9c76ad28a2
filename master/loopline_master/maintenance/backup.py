"""Backup: a copy of a master's database, files, tokens and keys, made while the master runs.

    loopline backup FOLDER

A file is on disk before the row that names it, so the database is copied first: the copy names no file that the
backup lacks, unless the master lacks it, too. Everything is read back, and its SHA-256 is kept in ``backup.json``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from loopline_master.settings import MasterSettings
from loopline_master.store.copies import copy_database
from loopline_master.store.database import is_sqlite, parse_url
from loopline_shared import __version__
from loopline_shared.disk.durable_files import sync_folder
from loopline_shared.errors import LooplineError
from loopline_shared.terminal.parser import Parser

CONTENTS = "backup.json"
DATABASE = "loopline.db"
_FILES = "files"
_NOT_COPIED = (Path(_FILES, "incoming"), Path("at-hand"))
"""Uploads under way, and what a bucket has as well."""


@dataclass(frozen=True, slots=True)
class Backup:
    """Copy of a master's data. ``damaged``: files whose content was not as their names say, already before."""

    folder: str
    files: int
    size_bytes: int
    damaged: list[str]


def back_up(settings: MasterSettings, target: Path) -> Backup:
    """Copy everything that a master needs to a new folder. Raises LooplineError; then there is no such folder."""
    source, database = settings.data_dir.absolute(), _database(settings)
    target = target.absolute()
    if target.exists():
        raise LooplineError(
            "backup", f"{target} exists already", "name a folder that is to be made, such as one a day"
        )
    if target.is_relative_to(source):
        raise LooplineError("backup", f"{target} is inside the data folder", "choose a place on another disk")
    part = target.with_name(f"{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        copy_database(database, part / DATABASE)
        for file in _copied(source, database):
            (part / file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # nothing needs it any more, and the master has just removed it
                shutil.copy2(source / file, part / file)
        done = _seal(part, target)
        os.sync()
        part.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        hint = "look at its space and its rights; what is there of the backup ends in .part"
        raise LooplineError("backup", f"cannot write {error.filename or part}: {error.strerror}", hint) from None
    return done


def sum_of(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _database(settings: MasterSettings) -> Path:
    url = parse_url(settings.database)
    if not is_sqlite(url):
        hint = "copy it with pg_dump, then the data folder with your own means"
        raise LooplineError("backup", "the database is not a file of this master", hint)
    file = Path(url.database or "")
    if not file.is_file():
        hint = "name the master's data folder with --data-dir"
        raise LooplineError("backup", f"there is no database {file}", hint)
    return file


def _copied(source: Path, database: Path) -> Iterator[Path]:
    """Yield the files that are copied as they are, relative to the data folder."""
    its_own = (f"{database.name}-", f"{database.name}.")  # what SQLite and the master keep beside it
    for folder, folders, names in os.walk(source):
        here = Path(folder).relative_to(source)
        folders[:] = [name for name in folders if here / name not in _NOT_COPIED]
        for name in names:
            is_beside = Path(folder) == database.parent and (name == database.name or name.startswith(its_own))
            if not is_beside and not name.endswith(".part"):
                yield here / name


def _seal(part: Path, target: Path) -> Backup:
    """Read back what was copied, and write down what it is."""
    files = sorted(file for file in part.rglob("*") if file.is_file())
    sums = {file.relative_to(part).as_posix(): sum_of(file) for file in files}
    damaged = [name for name, found in sums.items() if name.startswith(f"{_FILES}/") and not _fits(name, found)]
    contents = {"loopline": __version__, "made_at": time.time(), "sha256": sums}
    (part / CONTENTS).write_text(json.dumps(contents, indent=1) + "\n", "utf-8")
    return Backup(str(target), len(files), sum(file.stat().st_size for file in files), damaged)


def _fits(name: str, found: str) -> bool:
    return name.removeprefix(f"{_FILES}/").replace("/", "") == found


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, 1 if a file of the master is damaged, 2 if there is no backup."""
    parser = Parser(
        "loopline backup",
        description="Copy a master's database, files, tokens and keys, while it runs. For the master's own user.",
        epilog="Exit codes: 0 done; 1 done, but files of the master are damaged; 2 there is no backup.",
    )
    parser.add_argument("folder", type=Path, help="the folder that is to be made")
    parser.add_argument("--data-dir", help="the master's data folder, if it is not the usual one")
    parser.add_argument("--json", action="store_true", help="answer with JSON on stdout")
    chosen = parser.parse_args(arguments)
    try:
        done = back_up(MasterSettings.load(data_dir=chosen.data_dir), chosen.folder)
    except LooplineError as error:
        print(f"error: {error.message}\n{error.hint}", file=sys.stderr)
        return 2
    if chosen.json:
        print(json.dumps(asdict(done)))
    else:
        print(f"{done.files:,} files, {done.size_bytes / 2**20:,.1f} MiB, read back and found whole: {done.folder}")
    for name in done.damaged:
        print(f"warning: {name} was damaged in the data folder already", file=sys.stderr)
    return 1 if done.damaged else 0


if __name__ == "__main__":
    sys.exit(main())
