"""fsck: checks that a master's files match their names, and that all files named by jobs exist.

    loopline fsck [--set-aside]

A file is named by the SHA-256 of its content, so that each can be checked by itself. The master may keep running:
nothing is written, except that damaged files are set aside, so that the same content can be stored again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from loopline_master.files import whole_files
from loopline_master.files.bucket import Bucket
from loopline_master.files.retention import left_since
from loopline_master.files.whole_files import DAMAGED
from loopline_master.maintenance.backup import sum_of
from loopline_master.settings import MasterSettings
from loopline_master.store.database import Transact, is_sqlite, parse_url, reading
from loopline_master.store.queries.file_references import CHECKPOINT, NAME, FileReferences
from loopline_shared.errors import LooplineError
from loopline_shared.terminal.parser import Parser

_FILE = re.compile(r"[0-9a-f]{62}")
_TOLD_EVERY_S = 1.0
_MISSING = "missing"

StateOf = Callable[[str], str]
"""Says what is wrong with a file that is named; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A file that is gone or damaged, and the jobs that name it; ``job`` 0: no job does. ``task`` 0: the job as a
    whole.
    """

    file: str
    what: str  # "missing" or "damaged"
    job: int = 0
    task: int = 0
    checkpoint: bool = False  # it belongs to a checkpoint of the task

    @property
    def remedy(self) -> str:
        """The next step for a person."""
        if not self.job:
            return "nothing needs it"
        if self.checkpoint:
            return f"of a checkpoint of task {self.job}.{self.task}: an attempt continues from the one before it"
        if self.task:
            return f"of task {self.job}.{self.task}: submit it again; `loopline tasks {self.job}` has its parameters"
        return f"an input of job {self.job}: submit the job again, or send that file again under its name"


@dataclass(slots=True)
class FilesChecked:
    """The files that were read, and their faults."""

    files: int = 0
    size_bytes: int = 0
    losses: list[Loss] = field(default_factory=list)


async def check(settings: MasterSettings) -> FilesChecked:
    """Read all files, then all rows that name some. Raises LooplineError if the database cannot be read.

    Files in a bucket are listed, and not read: their service checks them.
    """
    report, damaged, url = FilesChecked(), set[str](), parse_url(settings.database)
    if is_sqlite(url) and not Path(url.database or "").is_file():
        hint = "name the master's data folder with --data-dir"
        raise LooplineError("fsck", f"there is no database {url.database}", hint)
    if settings.files:
        state_of, content_of = _in_bucket(Bucket(settings.files), report), None
    else:
        folder = settings.files_folder.absolute()
        damaged.update(_damaged(folder, report))
        state_of, content_of = partial(_in_folder, folder, damaged), partial(_content, folder)
    named = set[str]()
    async with reading(url) as read:
        async for loss in _named_losses(read, state_of, content_of, left_since(settings, time.time())):
            named.add(loss.file)
            report.losses.append(loss)
    report.losses += [Loss(name, DAMAGED) for name in sorted(damaged - named)]
    return report


def set_aside(settings: MasterSettings, report: FilesChecked) -> None:
    """Move the damaged files away, so that the same content can be sent again. Raises LooplineError."""
    files = settings.data_dir.absolute() / "files"
    place = files.with_name(DAMAGED)
    try:
        for name in {loss.file for loss in report.losses if loss.what == DAMAGED}:
            with suppress(FileNotFoundError):  # the master has set it aside, or nothing needed it any more
                whole_files.set_aside(_path(files, name), name)
    except OSError as error:
        hint = "look at the rights of that folder; run this as the master's own user"
        raise LooplineError("fsck", f"cannot set files aside in {place}: {error.strerror}", hint) from None


def _damaged(folder: Path, report: FilesChecked) -> Iterator[str]:
    """Yield the names of the files whose content is another one."""
    told_at = time.monotonic()
    for file in _files(folder):
        name = file.parent.name + file.name
        try:
            report.size_bytes += file.stat().st_size
            if sum_of(file) != name:
                yield name
        except FileNotFoundError:  # nothing needed it any more, and the master has just removed it
            continue
        except OSError as error:  # the disk itself cannot read it
            print(f"{file}: {error.strerror}", file=sys.stderr)
            yield name
        report.files += 1
        if sys.stderr.isatty() and time.monotonic() - told_at > _TOLD_EVERY_S:
            told_at = time.monotonic()
            print(f"{report.files:,} files, {report.size_bytes / 2**30:,.1f} GiB read", file=sys.stderr)


def _files(folder: Path) -> Iterator[Path]:
    for place in sorted(folder.glob("[0-9a-f][0-9a-f]")):
        yield from (file for file in sorted(place.iterdir()) if _FILE.fullmatch(file.name))


async def _named_losses(
    read: Transact, state_of: StateOf, content_of: Callable[[str], str] | None, left_at: float
) -> AsyncIterator[Loss]:
    """Yield the named files that are lost. ``content_of``: reads a manifest, whose pieces are named, too."""
    async for named in FileReferences(read, write=read).named(left_since=left_at):  # no row is changed here
        is_manifest, names = named.text.startswith(CHECKPOINT), named.names()
        if is_manifest and content_of:
            names += NAME.findall(content_of(names[0]))
        for name in dict.fromkeys(names):
            if what := state_of(name):
                yield Loss(name, what, named.job, named.task, is_manifest)


def _content(folder: Path, name: str) -> str:
    try:
        return _path(folder, name).read_text(errors="replace")
    except OSError:
        return ""


def _in_folder(folder: Path, damaged: set[str], name: str) -> str:
    if name in damaged:
        return DAMAGED
    if _path(folder, name).is_file():
        return ""
    return DAMAGED if (folder.with_name(DAMAGED) / name).exists() else _MISSING


def _in_bucket(bucket: Bucket, report: FilesChecked) -> StateOf:
    kept = set[str]()
    for page in bucket.list():
        kept.update(found.key.replace("/", "") for found in page)
        report.size_bytes += sum(found.size_bytes for found in page)
    report.files = len(kept)
    return lambda name: "" if name in kept else _MISSING


def _path(folder: Path, name: str) -> Path:
    return folder / name[:2] / name[2:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, 1 if files are missing or damaged, 2 if they could not be checked."""
    parser = Parser(
        "loopline fsck",
        description="Check that a master's files are whole, and those that jobs name are there, while it runs.",
        epilog="Exit codes: 0 all is well; 1 files are missing or damaged; 2 it could not be checked.",
    )
    parser.add_argument("--set-aside", action="store_true", help="move damaged files away: they can come again")
    parser.add_argument("--data-dir", help="the master's data folder, if it is not the usual one")
    parser.add_argument("--json", action="store_true", help="answer with JSON on stdout")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.data_dir is None:
            _check_is_here(os.environ.get("LOOPLINE_MASTER", ""))
        settings = MasterSettings.load(data_dir=chosen.data_dir)
        report = asyncio.run(check(settings))
        if chosen.set_aside:
            set_aside(settings, report)
    except LooplineError as error:
        print(f"error: {error.message}\n{error.hint}", file=sys.stderr)
        return 2
    _tell(report, as_json=chosen.json)
    return 1 if report.losses else 0


def _check_is_here(addresses: str) -> None:
    """Raise LooplineError if LOOPLINE_MASTER names masters of other computers only: their files are not here."""
    here = {"localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()}
    if addresses and not here & {urlsplit(address).hostname for address in addresses.split(",")}:
        message = f"LOOPLINE_MASTER is {addresses}: fsck reads the files of a master on this computer"
        raise LooplineError("fsck", message, "run it there, or name a data folder of this computer with --data-dir")


def _tell(report: FilesChecked, *, as_json: bool) -> None:
    if as_json:
        losses = [{**asdict(loss), "remedy": loss.remedy} for loss in report.losses]
        print(json.dumps({"files": report.files, "bytes": report.size_bytes, "losses": losses}))
        return
    for loss in report.losses:
        print(f"{loss.what}: {loss.file}: {loss.remedy}")
    found = f"{len(report.losses):,} missing or damaged" if report.losses else "all whole and there"
    print(f"{report.files:,} files, {report.size_bytes / 2**20:,.1f} MiB: {found}")


if __name__ == "__main__":
    sys.exit(main())
