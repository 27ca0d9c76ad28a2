"""Collecting the output files of a task: matched in its scratch folder, moved out of it, and named by content.

The task has ended, but other programs of the same user may still change the folder: no link is followed, and the file
that was moved is hashed, not the one that was seen.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO

from pydantic import ConfigDict, TypeAdapter, ValidationError

from loopline_shared.model import MAX_OUTPUT_FILES, MAX_OUTPUT_NAMES, InputFile, OutputFile
from loopline_shared.paths import ANY_FOLDERS, MAX_DEPTH, TEMPORARY, RelativePath, is_wild
from loopline_worker.files import confined_paths

MAX_SEEN = 1_000_000
"""Most names that are looked at in one scratch folder."""
_BLOCK_BYTES = 2**20
_path: TypeAdapter[str] = TypeAdapter(RelativePath, config=ConfigDict(defer_build=True))

Names = tuple[str, ...]
_Place = tuple[int, int]
"""Progress of a path: a pattern's number, and how many of its names have been matched."""


class OutputsError(Exception):
    """Outputs cannot be collected, by the task's own fault: the reason is for its user."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Collected output files."""

    files: tuple[OutputFile, ...] = ()
    remark: str = ""  # about files that were left out


class Patterns:
    """The patterns of a job, matched name by name on the way down, so that no other folder is read."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [pattern.split("/") for pattern in patterns]
        self.start = self._closed({(index, 0) for index in range(len(patterns))})

    def after(self, places: frozenset[_Place], name: str) -> frozenset[_Place]:
        """Return the places one name further; empty if nothing below it matches."""
        return self._closed({after for place in places for after in self._after(place, name)})

    def is_match(self, places: frozenset[_Place]) -> bool:
        """True if a pattern is matched as a whole."""
        return any(matched == len(self._patterns[index]) for index, matched in places)

    def goes_on(self, places: frozenset[_Place]) -> bool:
        """True if something below may match."""
        return any(matched < len(self._patterns[index]) for index, matched in places)

    def _after(self, place: _Place, name: str) -> Iterator[_Place]:
        index, matched = place
        pattern = self._patterns[index]
        if matched == len(pattern):
            return
        wanted = pattern[matched]
        if name.startswith(".") and not wanted.startswith("."):  # as in a shell
            return
        if wanted == ANY_FOLDERS:
            yield index, matched
        elif fnmatchcase(name, wanted):
            yield index, matched + 1

    def _closed(self, places: set[_Place]) -> frozenset[_Place]:
        """Add the places behind each ``**``, which may match no folder at all."""
        todo = list(places)
        while todo:
            index, matched = todo.pop()
            pattern = self._patterns[index]
            if matched < len(pattern) and pattern[matched] == ANY_FOLDERS and (index, matched + 1) not in places:
                places.add((index, matched + 1))
                todo.append((index, matched + 1))
        return frozenset(places)


class Collector:
    """Collects the outputs of one attempt. ``store``: a folder of the agent on the same disk, for the files."""

    def __init__(
        self,
        folder: Path,
        patterns: Sequence[str],
        store: Path,
        limit_bytes: int,
    ) -> None:
        self._folder = folder
        self._literal = [pattern for pattern in patterns if not is_wild(pattern)]
        self._patterns = Patterns(patterns)
        self._store = store
        self._limit_bytes = limit_bytes
        self.is_unwanted = False  # set from another thread
        self._seen = 0
        self._links = 0

    def collect(self, inputs: Mapping[str, InputFile]) -> Collected:
        """Collect all outputs but unmodified inputs; blocks. Raises OutputsError, or OSError for the disk."""
        found = sorted(self._walk((), self._patterns.start))
        self._check_named({"/".join(names) for names in found})
        shutil.rmtree(self._store, ignore_errors=True)
        self._store.mkdir(parents=True)
        taken, left_bytes = [], self._limit_bytes
        for names in found:
            file = self._move_to_store(names, left_bytes, inputs.get("/".join(names)))
            if file is None:
                continue
            left_bytes -= file.size_bytes
            taken.append(file)
            self._check_limits(taken, left_bytes)
        self._drop_all_but({file.sha256 for file in taken})
        return Collected(tuple(taken), self._remark())

    def _walk(self, names: Names, places: frozenset[_Place]) -> Iterator[Names]:
        """Yield the regular files that match."""
        try:
            with (
                confined_paths.folder(self._folder, names) as handle,
                os.scandir(self._folder.joinpath(*names) if handle is None else handle) as entries,
            ):
                known = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        except (PermissionError, FileNotFoundError, NotADirectoryError) as error:
            raise OutputsError(f"its folder {_shown(names)} cannot be read: {error.strerror}") from None
        self._seen += len(known)
        if self._seen > MAX_SEEN:
            raise OutputsError(f"its folder holds more than {MAX_SEEN:,} files: use narrower output patterns")
        for name, mode in known:
            self._check_wanted()
            if not names and name == TEMPORARY:
                continue
            after = self._patterns.after(places, name)
            if S_ISDIR(mode):
                if self._patterns.goes_on(after) and len(names) >= MAX_DEPTH - 1:
                    raise OutputsError(
                        f"its folder {_shown(names)} is too deep: {MAX_DEPTH - 1} folders are the limit"
                    )
                if self._patterns.goes_on(after):
                    yield from self._walk((*names, name), after)
            elif self._patterns.is_match(after):
                if S_ISREG(mode):
                    yield (*names, name)
                else:
                    self._links += 1

    def _check_named(self, found: set[str]) -> None:
        """Check that outputs named literally exist: a lost result must not look like a success."""
        for path in self._literal:
            if path not in found:
                raise OutputsError(f"its output {path} {self._why_not(path)}")
        if len(found) > MAX_OUTPUT_FILES:
            hint = "pack them into one archive"
            raise OutputsError(f"{len(found):,} files match its outputs, the limit is {MAX_OUTPUT_FILES:,}: {hint}")

    def _why_not(self, path: str) -> str:
        *folders, name = path.split("/")
        try:
            with confined_paths.folder(self._folder, folders) as handle:
                mode = os.stat(
                    confined_paths.at(self._folder, (*folders, name), handle), dir_fd=handle, follow_symlinks=False
                ).st_mode
        except FileNotFoundError:
            return "does not exist"
        except OSError as error:
            in_link = error.errno in (errno.ELOOP, errno.ENOTDIR) or isinstance(error, confined_paths.LinkError)
            return "is behind a link, which is not followed" if in_link else f"cannot be read: {error.strerror}"
        return f"is a folder: {path}/** collects its files" if S_ISDIR(mode) else "is a link or a device, not a file"

    def _check_wanted(self) -> None:
        if self.is_unwanted:
            raise OutputsError("nobody waits for its outputs any more")

    def _move_to_store(self, names: Names, left_bytes: int, was: InputFile | None) -> OutputFile | None:
        """Move one output into the store under its hash; None if it is an unmodified input."""
        path = _checked("/".join(names))
        moved = self._store / "moving"
        with confined_paths.folder(self._folder, names[:-1]) as handle:
            source = confined_paths.at(self._folder, names, handle)
            _move(source, handle, moved)
        if not S_ISREG(moved.lstat().st_mode):
            moved.unlink()
            raise OutputsError(f"its output {path} was replaced while it was collected")
        if was and self._is_unmodified(moved, was):
            moved.unlink()
            return None
        self._check_size(left_bytes - moved.lstat().st_size)
        own = self._own(moved, path)
        sha256, size_bytes = self._hash(own), own.stat().st_size
        with own.open("rb+") as file:
            os.fsync(file.fileno())
        own.replace(self._store / sha256)
        return OutputFile(path, sha256, size_bytes)

    def _is_unmodified(self, moved: Path, was: InputFile) -> bool:
        with suppress(PermissionError):
            return self._hash(moved) == was.sha256
        return False

    def _own(self, moved: Path, path: str) -> Path:
        """Return the moved file, or a copy if it has other hard links or belongs to the user of a task."""
        status = moved.lstat()
        if status.st_nlink == 1 and (os.name == "nt" or status.st_uid == os.geteuid()):
            moved.chmod(0o600)
            return moved
        own = self._store / "copied"
        try:
            with own.open("xb") as copy:
                self._hash(moved, copy)
        except PermissionError as error:
            raise OutputsError(f"its output {path} cannot be read: {error.strerror}") from None
        moved.unlink()
        return own

    def _hash(self, file: Path, copy: IO[bytes] | None = None) -> str:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while piece := stream.read(_BLOCK_BYTES):
                self._check_wanted()
                digest.update(piece)
                if copy:
                    copy.write(piece)
        return digest.hexdigest()

    def _check_size(self, left_bytes: int) -> None:
        if left_bytes < 0:
            limit = f"{self._limit_bytes:,} bytes (outputs_limit_bytes of this worker)"
            raise OutputsError(f"its outputs have more than {limit}")

    def _check_limits(self, taken: Sequence[OutputFile], left_bytes: int) -> None:
        self._check_size(left_bytes)
        if sum(len(file.path) for file in taken) > MAX_OUTPUT_NAMES:
            raise OutputsError(f"the names of its outputs have more than {MAX_OUTPUT_NAMES:,} characters")

    def _drop_all_but(self, wanted: set[str]) -> None:
        for file in self._store.iterdir():
            if file.name not in wanted:
                file.unlink()
        if not wanted:
            self._store.rmdir()

    def _remark(self) -> str:
        if not self._links:
            return ""
        return f"{self._links} links or devices that match its outputs were left out: only files are collected"


def _shown(names: Names) -> str:
    """Return the path for a message: file systems allow names that are no text."""
    return ("/".join(names) or ".").encode(errors="backslashreplace").decode()[:200]


def _checked(path: str) -> str:
    try:
        return _path.validate_python(path)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise OutputsError(f"an output has an invalid name: {reason}") from None


def _move(source: str, handle: int | None, target: Path) -> None:
    try:
        os.rename(source, target, src_dir_fd=handle)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        opened = os.open(source, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0), dir_fd=handle)
        with os.fdopen(opened, "rb") as original, target.open("xb") as copy:
            shutil.copyfileobj(original, copy, 2**20)
