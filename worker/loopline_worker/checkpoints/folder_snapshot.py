"""Taking a folder as it is at one moment: while its task is still, and without reading large files.

A small file is copied. A larger one is opened under a read lease (fcntl(2)), which the kernel refuses while any
process can write to the file, by a descriptor or a mapping, and which it breaks before another one may. So the file
can be read after the task has continued. A file that has a writer is copied as well, if there is time for it. A hard
link would protect against renames only, and not against writing into the same file.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from loopline_shared.paths import MAX_DEPTH
from loopline_shared.protocol.saved_state import MAX_FILES, SavedFile
from loopline_worker.checkpoints.save_events import UNFINISHED, step_of
from loopline_worker.files import confined_paths

if sys.platform != "win32":
    import fcntl

MOST_COPIED_BYTES = 16 * 2**20
"""Bytes that may be copied while the task is still."""
_SMALL_BYTES = 2**16
SETTLED_NS = 10**9
"""Two changes of a file this far apart have different times: clocks of file systems have coarse steps."""
_CHECK_EVERY = 16
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

Stamp = tuple[int, int, int, int]


class NotTakenError(Exception):
    """No checkpoint can be taken now; the message is for the task's user."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as it is in the checkpoint before."""

    stamp: Stamp
    is_settled: bool  # its last change was long before it was taken: the same stamp means the same content
    saved: SavedFile
    sha256: str  # of a file smaller than a piece, as a whole; empty for others


@dataclass(slots=True)
class TakenFile:
    """A file that was taken: its content, or an open file, or neither if nothing can change it any more."""

    path: str
    mode: int
    stamp: Stamp
    content: bytes | None = None
    handle: int = -1
    known: KnownFile | None = None  # it has not changed since
    was_leased: bool = False  # no process could write to it

    @property
    def size_bytes(self) -> int:
        """Return the size in the snapshot."""
        return self.stamp[1]


@dataclass(slots=True, eq=False)
class TakenFolder:
    """The folder of a task, taken at one moment. Close it after reading."""

    base: Path
    taken_at_ns: int
    files: list[TakenFile] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # without files
    size_bytes: int = 0
    has_writer: bool = False  # one of the files may change without a sign of it
    is_broken: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def step(self) -> int | None:
        """Return the N of the newest ``step-N`` in the folder; None if there is no such name."""
        names = {path.partition("/")[0] for path in (*(file.path for file in self.files), *self.folders)}
        return max((step for step in map(step_of, names) if step is not None), default=None)

    def is_sound(self, file: TakenFile) -> bool:
        """True if no process can have written to a file since it was taken."""
        return file.handle < 0 or (not self.is_broken and fcntl.fcntl(file.handle, fcntl.F_GETLEASE) == fcntl.F_RDLCK)

    def check_leases(self) -> None:
        """Release all files if a program waits to write to one of them. The snapshot is lost then."""
        with self._lock:
            leased = [file.handle for file in self.files if file.was_leased and file.handle >= 0]
            if all(fcntl.fcntl(handle, fcntl.F_GETLEASE) == fcntl.F_RDLCK for handle in leased):
                return
            self.is_broken = True
            for handle in leased:
                fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def close(self, *files: TakenFile) -> None:
        """Close these files, or all."""
        with self._lock:
            for file in files or self.files:
                if file.handle >= 0:
                    os.close(file.handle)
                    file.handle = -1


@dataclass(slots=True)
class SnapshotTerms:
    """The terms of one taking."""

    max_bytes: int
    known: Mapping[str, KnownFile]
    deadline: float | None = None  # by ``time.monotonic``; None: all processes are gone, so that nothing changes
    on_break: int = 0  # the signal that reports a broken lease
    most_open: int = 1000
    newest_step_only: bool = False  # of a gang's member: earlier folders ``step-N`` are about to be removed
    lessor: socket.socket | None = None  # leases files of the task's user, if it has one (supervisor/users/leases.py)


def fill(taken: TakenFolder, terms: SnapshotTerms) -> None:
    """Take the folder; in a thread. The caller closes it. Raises NotTakenError, OSError."""
    with confined_paths.folder(taken.base) as handle:
        _FolderWalk(taken, terms).walk(handle, "", 1)


def stamps(base: Path) -> dict[str, Stamp]:
    """Return the stamp of each file in a folder. Most changes of a file change its stamp. Raises OSError."""
    with confined_paths.folder(base) as handle:
        return dict(_stamps(base, "", handle, 1))


def _stamps(base: Path, prefix: str, handle: int | None, depth: int) -> Iterator[tuple[str, Stamp]]:
    for entry in _entries(base / prefix, handle):
        path = f"{prefix}/{entry.name}" if prefix else entry.name
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            yield path, _stamp(status)
        elif depth < MAX_DEPTH:
            with confined_paths.folder(base / prefix, (entry.name,)) as inner:
                yield from _stamps(base, path, inner, depth + 1)


def _entries(place: Path, handle: int | None) -> list[os.DirEntry[str]]:
    with os.scandir(place if handle is None else handle) as entries:
        return sorted((one for one in entries if not one.name.endswith(UNFINISHED)), key=lambda one: one.name)


def _newest_step_only(entries: list[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    steps = {entry.name: step_of(entry.name) for entry in entries}
    newest = max((step for step in steps.values() if step is not None), default=None)
    return [entry for entry in entries if steps[entry.name] in (None, newest)]


class _FolderWalk:
    def __init__(self, taken: TakenFolder, terms: SnapshotTerms) -> None:
        self._taken = taken
        self._terms = terms
        self._copied_bytes = 0
        self._leases = 0

    def walk(self, handle: int | None, prefix: str, depth: int) -> None:
        """Take a folder and those below it. It is opened name by name, never through a link."""
        place = self._taken.base / prefix
        entries = _entries(place, handle)
        if self._terms.newest_step_only and not prefix:
            entries = _newest_step_only(entries)
        if not entries and prefix:
            self._taken.folders.append(prefix)
        for entry in entries:
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_dir(follow_symlinks=False):
                if depth >= MAX_DEPTH:
                    raise NotTakenError(f"{_shown(path)} is too deep: {MAX_DEPTH} folders are the limit")
                with confined_paths.folder(place, (entry.name,)) as inner:
                    self.walk(inner, path, depth + 1)
            else:
                self._add_file(path, entry, handle)

    def _add_file(self, path: str, entry: os.DirEntry[str], folder: int | None) -> None:
        taken = self._taken
        if len(taken.files) + len(taken.folders) >= MAX_FILES:
            raise NotTakenError(f"it has more than {MAX_FILES:,} files: pack them into one")
        if len(taken.files) % _CHECK_EVERY == 0:
            self._check_time()
        if not entry.is_file(follow_symlinks=False):
            raise NotTakenError(f"{_shown(path)} is a link or a device, which is not saved")
        known = self._terms.known.get(path)
        status = entry.stat(follow_symlinks=False) if known and known.is_settled else None
        if known and status and known.stamp == _stamp(status):
            file = TakenFile(path, status.st_mode & 0o777, known.stamp, known=known, was_leased=True)
        else:
            file = self._opened(path, entry, folder)
        taken.files.append(file)
        taken.size_bytes += file.size_bytes
        if taken.size_bytes > self._terms.max_bytes:
            limit = f"{self._terms.max_bytes:,} bytes (checkpoint.max_bytes of its job)"
            raise NotTakenError(f"its files have more than {limit}")
        if not file.known:
            self._keep(file)

    def _opened(self, path: str, entry: os.DirEntry[str], folder: int | None) -> TakenFile:
        try:
            handle = os.open(entry.path if folder is None else entry.name, _OPEN, dir_fd=folder)
        except OSError as error:
            hint = ": let its group read it" if isinstance(error, PermissionError) else ""
            raise NotTakenError(f"{_shown(path)} cannot be read: {error.strerror}{hint}") from None
        status = os.fstat(handle)
        return TakenFile(path, status.st_mode & 0o777, _stamp(status), handle=handle)

    def _keep(self, file: TakenFile) -> None:
        """Copy a file, or keep it open under a lease, or close it if it cannot change any more."""
        if self._terms.deadline is None:
            self._taken.close(file)
        elif not self._lease(file):
            self._taken.has_writer = True
            if self._copied_bytes + file.size_bytes > MOST_COPIED_BYTES:
                raise NotTakenError(f"{_shown(file.path)} is written in place: write a new file and rename it")
            self._copy(file)
        elif file.size_bytes <= _SMALL_BYTES and self._copied_bytes < MOST_COPIED_BYTES:
            self._copy(file)
        else:
            self._leases += 1
            if self._leases > self._terms.most_open:
                reason = f"it has more than {self._terms.most_open:,} changed files of over {_SMALL_BYTES:,} bytes"
                raise NotTakenError(f"{reason}: pack them into fewer")

    def _lease(self, file: TakenFile) -> bool:
        """Take a lease on an open file. False if a process can write to it, or its disk has no leases."""
        try:
            if file.size_bytes > _SMALL_BYTES:  # a small one is closed before this could matter
                fcntl.fcntl(file.handle, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(file.handle, _SET_SIGNAL, self._terms.on_break)
            fcntl.fcntl(file.handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            if not self._lease_by_user(file):
                return False
        file.was_leased = True
        return True

    def _lease_by_user(self, file: TakenFile) -> bool:
        """Have the owner of a file take the lease, unless it is so small that copying it is quicker."""
        lessor = self._terms.lessor
        if lessor is None or file.size_bytes <= _SMALL_BYTES:
            return False
        try:
            socket.send_fds(lessor, [b"l"], [file.handle])
            return bool(lessor.recv(1)) and fcntl.fcntl(file.handle, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        except OSError:  # it was killed, or is too slow
            return False

    def _copy(self, file: TakenFile) -> None:
        parts, left = list[bytes](), file.size_bytes
        while left and (part := os.read(file.handle, min(left, 2**20))):
            parts.append(part)
            left -= len(part)
            self._check_time()
        if left:
            raise NotTakenError(f"{_shown(file.path)} became shorter while it was copied")
        file.content = b"".join(parts)
        self._copied_bytes += file.size_bytes
        self._taken.close(file)

    def _check_time(self) -> None:
        if self._terms.deadline is not None and time.monotonic() > self._terms.deadline:
            raise NotTakenError("its files cannot be taken in the time that the task may be stopped for it")


_SET_SIGNAL = 10  # F_SETSIG, which Python does not name


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _shown(path: str) -> str:
    with suppress(UnicodeEncodeError):
        path.encode()
        return path[:200]
    return ascii(path)[1:-1][:200]
