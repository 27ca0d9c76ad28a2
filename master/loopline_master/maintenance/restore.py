"""Restore: a data folder from a backup, for a master to go on from.

    loopline restore FOLDER
    loopline restore --database-url URL     a PostgreSQL that its own tools have restored

What happened since the backup is lost, but workers may still hold attempts from then. So another life of the database
begins (store/past/lives.py), where they no longer count. The jobs that come next get numbers that the lost ones
cannot have had, for users may have written numbers down.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from loopline_master.maintenance.backup import CONTENTS, DATABASE, sum_of
from loopline_master.settings import MasterSettings
from loopline_master.store.database import open_database, parse_url
from loopline_master.store.migrate import prepare
from loopline_master.store.past import lives
from loopline_shared.disk.durable_files import sync_folder
from loopline_shared.errors import LooplineError
from loopline_shared.terminal.parser import Parser


def restore(backup: Path, data_dir: Path) -> None:
    """Make the data folder from a backup, which is checked first. Raises LooplineError; then nothing was made."""
    if data_dir.exists() and any(data_dir.iterdir()):
        hint = "move it away first, or name another with --data-dir; nothing is overwritten"
        raise LooplineError("restore", f"the data folder {data_dir} is not empty", hint)
    _check(backup)
    part = data_dir.with_name(f"{data_dir.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(backup, part)
        (part / CONTENTS).unlink()
        part.chmod(0o700)
        begin_again(f"sqlite:///{(part / DATABASE).absolute()}")
        os.sync()
        if data_dir.exists():
            data_dir.rmdir()
        part.rename(data_dir)
        sync_folder(data_dir.parent)
    except OSError as error:
        hint = "look at its space and its rights"
        raise LooplineError("restore", f"cannot write {error.filename or part}: {error.strerror}", hint) from None


def _check(backup: Path) -> None:
    """Raises LooplineError if anything of the backup is missing or not as it was written."""
    try:
        sums = json.loads((backup / CONTENTS).read_text("utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        hint = "name a folder that `loopline backup` has made"
        raise LooplineError("restore", f"{backup} is not a backup: {CONTENTS} cannot be read", hint) from None
    for name, expected in sums.items():
        file = backup / name
        if not file.is_file() or sum_of(file) != expected:
            what = "has changed since the backup" if file.is_file() else "is missing"
            raise LooplineError("restore", f"{file} {what}", "restore another backup")


def begin_again(database_url: str) -> None:
    """Begin another life of a database that has been restored. Raises LooplineError, for example if it is in use."""
    url = parse_url(database_url)

    async def begin() -> None:
        async with open_database(url) as opened:
            await prepare(opened, url)
            await opened.write(lives.begin_again)

    asyncio.run(begin())


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, 2 if nothing could be restored."""
    parser = Parser(
        "loopline restore",
        description="Make a master's data folder from a backup. The folder must be empty, or not be there yet.",
        epilog="Exit codes: 0 done; 2 nothing was restored.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("backup", type=Path, nargs="?", help="the folder that `loopline backup` has made")
    what.add_argument("--database-url", help="a PostgreSQL that pg_restore has restored: it begins another life")
    parser.add_argument("--data-dir", help="the data folder that is to be made, if it is not the usual one")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.backup:
            data_dir = MasterSettings.load(data_dir=chosen.data_dir).data_dir.absolute()
            restore(chosen.backup, data_dir)
            done = f"restored to {data_dir}"
        else:
            begin_again(chosen.database_url)
            done = "the database begins another life"
    except LooplineError as error:
        print(f"error: {error.message}\n{error.hint}", file=sys.stderr)
        return 2
    print(f"{done}: start the master on it; its next job's number is {lives.JOB_GAP:,} higher")
    return 0


if __name__ == "__main__":
    sys.exit(main())
