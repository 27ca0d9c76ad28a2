"""A disk as the recorder's log describes it: its certain content, and the content that a power cut may lose.

A file's content is certain as of its last sync, and a name as of the last sync of its folder. Later writes and names
are *pending*. A power cut leaves of each pending write all, nothing, or some of its sectors, and each pending name or
not, independently of one another. A real file system loses no more.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_HEAD = struct.Struct("IIIIQQ")
_SECTOR_BYTES = 512
_SHARED_MEMORY = "-shm"
"""Ending of SQLite's shared memory, which it rebuilds from the log at the first start."""


@dataclass(frozen=True, slots=True)
class Record:
    """One call: kind, path, bytes or second path, inode and offset, as in recorder.c."""

    kind: str
    path: str
    data: bytes
    inode: int
    offset: int


def compiled(folder: Path) -> Path:
    """Compile the recorder; the test is skipped without a compiler. Raises CalledProcessError if it refuses it."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler: apt install gcc")
    library = folder / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    command = [
        "cc",
        "-O2",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(source),
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return library


def recording(library: Path, root: Path, log: Path) -> dict[str, str]:
    """Return the environment variables that record a process and its children."""
    return {"LD_PRELOAD": str(library), "POWER_ROOT": str(root), "POWER_LOG": str(log)}


def note(log: Path, said: str) -> None:
    """Append what a user has now been promised: everything recorded before must suffice for it."""
    text = said.encode()
    with log.open("ab", buffering=0) as file:
        file.write(_HEAD.pack(ord("A"), 0, len(text), 0, 0, 0) + text)


def read_records(log: Path) -> list[Record]:
    found, raw, at = [], log.read_bytes(), 0
    while at < len(raw):
        kind, path_bytes, data_bytes, _, inode, offset = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        path = raw[at : at + path_bytes].decode()
        found.append(Record(chr(kind), path, raw[at + path_bytes : at + path_bytes + data_bytes], inode, offset))
        at += path_bytes + data_bytes
    return found


@dataclass(frozen=True, slots=True)
class Write:
    """A pending change of content: bytes at an offset, or (None) a new length."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, chance: random.Random) -> Iterator[Write]:
        """Yield the sectors that reached the disk."""
        for at in range(0, len(self.data or b""), _SECTOR_BYTES):
            if self.data and chance.random() < 0.5:
                yield Write(self.offset + at, self.data[at : at + _SECTOR_BYTES])


@dataclass(eq=False, slots=True)
class File:
    certain: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)

    def apply(self, record: Record) -> None:
        if record.kind == "S":
            self.sync()
        else:
            self.pending.append(Write(record.offset, record.data if record.kind == "W" else None))

    def sync(self) -> None:
        for write in self.pending:
            write.apply(self.certain)
        self.pending.clear()

    def after_cut(self, chance: random.Random | None) -> bytes:
        """Return the content after a power cut; without ``chance``, as programs see it."""
        content = bytearray(self.certain)
        for write in self.pending:
            fate = "whole" if chance is None else chance.choice(("whole", "whole", "absent", "absent", "torn"))
            if write.data is None and fate == "torn":
                fate = "absent"
            for part in (write,) if fate == "whole" else write.torn(chance) if fate == "torn" and chance else ():
                part.apply(content)
        return bytes(content)


@dataclass(eq=False, slots=True)
class Folder:
    certain: dict[str, Node] = field(default_factory=dict)
    pending: list[Naming] = field(default_factory=list)  # in order, also of other folders' names

    def entries(self) -> dict[str, Node]:
        """Return the names as programs see them."""
        found = dict(self.certain)
        for naming in self.pending:
            naming.apply(self, found)
        return found


Node = File | Folder


@dataclass(eq=False, slots=True)
class Naming:
    """A pending change of names, in one or two folders: both happen or neither."""

    changes: list[tuple[Folder, str, Node | None]]

    def give_way(self, later: Naming) -> None:
        """Drop the changes of names that a later one has made certain."""
        certain = [(where, name) for where, name, _ in later.changes]
        self.changes = [change for change in self.changes if change[:2] not in certain]

    def apply(self, folder: Folder, names: dict[str, Node]) -> None:
        for where, name, node in self.changes:
            if where is not folder:
                continue
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class Disk:
    """The folder that was recorded."""

    def __init__(self, root: Path) -> None:
        """Begin with the files that are there now, which are certain."""
        self._root = root
        self._files: dict[int, File] = {}
        self._top = self._read(root)
        self.promised: list[str] = []

    def _read(self, folder: Path) -> Folder:
        found = Folder()
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                found.certain[entry.name] = self._read(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                file = found.certain[entry.name] = File(bytearray(Path(entry.path).read_bytes()))
                self._files[entry.inode()] = file
        return found

    def apply(self, record: Record) -> None:
        """Take in the next record."""
        match record.kind:
            case "A":
                self.promised.append(record.data.decode())
            case "C":
                file = self._files[record.inode] = File()
                self._name((record.path, file))
            case "M":
                self._name((record.path, Folder()))
            case "U":
                self._name((record.path, None))
            case "R":
                source, target = record.path, record.data.decode()
                self._name((target, self._find(source)), (source, None))
            case "D":
                self._sync_names(self._find(record.path))
            case "Y":
                self._sync_all(self._top)
            case _ if file := self._files.get(record.inode):
                file.apply(record)

    def _split(self, path: str) -> tuple[Folder, str] | None:
        """Return the folder of a path and the name in it; None if it is not below the root."""
        if not path.startswith(f"{self._root}/"):
            return None
        *folders, name = Path(path).relative_to(self._root).parts
        here: Node | None = self._top
        for part in folders:
            here = here.entries().get(part) if isinstance(here, Folder) else None
        return (here, name) if isinstance(here, Folder) else None

    def _find(self, path: str) -> Node | None:
        if path == str(self._root):
            return self._top
        place = self._split(path)
        return place[0].entries().get(place[1]) if place else None

    def _name(self, *changes: tuple[str, Node | None]) -> None:
        found = [(place, node) for path, node in changes if (place := self._split(path))]
        naming = Naming([(folder, name, node) for (folder, name), node in found])
        for folder in dict.fromkeys(folder for (folder, _), _ in found):
            folder.pending.append(naming)

    def _sync_names(self, folder: Node | None) -> None:
        if not isinstance(folder, Folder):
            return
        for naming in list(folder.pending):
            for other in dict.fromkeys(where for where, _, _ in naming.changes):
                naming.apply(other, other.certain)
                for earlier in other.pending[: other.pending.index(naming)]:
                    earlier.give_way(naming)
                other.pending.remove(naming)

    def _sync_all(self, folder: Folder) -> None:
        self._sync_names(folder)
        for file in self._files.values():
            file.sync()
        for node in folder.certain.values():
            if isinstance(node, Folder):
                self._sync_all(node)

    # --- the disk after a power cut -----------------------------------------------------------------------------

    def rebuild(self, target: Path, chance: random.Random | None = None) -> None:
        """Write the disk to a new folder as a power cut leaves it now; without ``chance``, as programs see it."""
        kept: dict[Naming, bool] = {}
        self._write(self._top, target, chance, kept)

    def lose_all_pending(self, target: Path) -> None:
        """Write what is certain, and nothing else."""
        self._write(self._top, target, _Never(), {})

    def _write(self, folder: Folder, target: Path, chance: random.Random | None, kept: dict[Naming, bool]) -> None:
        target.mkdir(mode=0o700, parents=True)
        names = dict(folder.certain)
        for naming in folder.pending:
            if naming not in kept:
                kept[naming] = chance is None or chance.random() < 0.5
            if kept[naming]:
                naming.apply(folder, names)
        for name, node in names.items():
            if isinstance(node, Folder):
                self._write(node, target / name, chance, kept)
            elif not name.endswith(_SHARED_MEMORY):
                (target / name).write_bytes(node.after_cut(chance))
                (target / name).chmod(0o600)


class _Never(random.Random):
    """Loses everything that can be lost."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq: object) -> object:  # type: ignore[override]
        return "absent"


def difference(one: Path, other: Path) -> Mapping[str, str]:
    """Return the paths whose content differs."""
    found: dict[str, str] = {}
    for path in {*_below(one), *_below(other)}:
        first, second = one / path, other / path
        if first.is_file() != second.is_file():
            found[path] = f"only in {one if first.is_file() else other}"
        elif first.is_file() and first.read_bytes() != second.read_bytes():
            found[path] = f"{first.stat().st_size} and {second.stat().st_size} bytes"
    return found


def _below(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if not path.is_dir() and not path.name.endswith(_SHARED_MEMORY):
            yield str(path.relative_to(folder))
