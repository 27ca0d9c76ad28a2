"""Collecting the output files of a task: matched in its scratch folder, moved out of it, and named by content.

The task has ended, but other programs of the same user may still change the folder: no link is followed, and the
moved file is hashed, not the one found before. One file that cannot be brought does not keep the others from it: it
is named as a problem.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from stat import S_ISDIR, S_ISREG, S_IXUSR
from types import MappingProxyType
from typing import IO

from pydantic import ConfigDict, TypeAdapter, ValidationError

from loopline_shared.model import MAX_OUTPUT_FILES, MAX_OUTPUT_NAMES, InputFile, OutputFile
from loopline_shared.paths import ANY_FOLDERS, MAX_DEPTH, TEMPORARY, RelativePath, alternatives, is_wild
from loopline_shared.protocol.templates import Value, fill_text
from loopline_worker.files import confined_paths
from loopline_worker.files.output_patterns import FilePattern, PatternMatcher

MAX_SEEN = 1_000_000
"""Maximum number of names that are read in one scratch folder."""
_MOST_PROBLEMS = 3
_MOST_FOUND = 5
_BLOCK_BYTES = 2**20
_NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_path: TypeAdapter[str] = TypeAdapter(RelativePath, config=ConfigDict(defer_build=True))

Names = tuple[str, ...]


class OutputsError(Exception):
    """Collecting was cancelled: no task waits for the outputs."""


class _OutputError(Exception):
    """A file or folder cannot be brought; the reason is for the task's user."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Collected output files."""

    files: tuple[OutputFile, ...] = ()
    problems: tuple[str, ...] = ()  # why outputs are missing; none of them would be gone after another attempt
    remark: str = ""  # about files that were left out, and need not have been brought


class Collector:
    """Collects the outputs of one attempt."""

    def __init__(
        self,
        folder: Path,
        patterns: Sequence[str],
        store: Path,
        limit_bytes: int,
        *,
        optional: Sequence[str] = (),
        parameters: Mapping[str, Value] = MappingProxyType({}),
        excluded: Sequence[str] = (TEMPORARY,),
    ) -> None:
        """Prepare to collect what matches the ``patterns``, and the ``optional`` ones, which may match nothing.

        ``store`` is a folder of the agent on the same disk, for the files. Patterns name the task's ``parameters`` in
        braces. Folders with ``excluded`` names are not searched, where they are in the scratch folder itself.
        """
        self._excluded = excluded
        self._parameters = parameters
        self._folder = folder
        self._texts = [*((text, False) for text in patterns), *((text, True) for text in optional)]
        self._store = store
        self._limit_bytes = limit_bytes
        self.is_unwanted = False  # set from another thread
        self._patterns: list[FilePattern] = []
        self._found: dict[Names, frozenset[int]] = {}  # files, with the numbers of the patterns that match
        self._problems: list[str] = []
        self._seen = 0
        self._links = 0

    def collect(self, inputs: Mapping[str, InputFile]) -> Collected:
        """Collect all outputs; blocks. Raises OutputsError, or OSError for the disk.

        Unmodified inputs count as outputs only if a pattern names them exactly.
        """
        self._patterns = [pattern for text, is_optional in self._texts for pattern in self._read(text, is_optional)]
        matcher = PatternMatcher(self._patterns)
        missing = list[str]()
        try:
            self._walk(matcher, (), matcher.start)
        except _OutputError as problem:
            self._problems.append(str(problem))
        else:
            missing = self._missing(inputs)
        shutil.rmtree(self._store, ignore_errors=True)
        self._store.mkdir(parents=True)
        files, unchanged = self._take_all(inputs)
        self._drop_all_but({file.sha256 for file in files})
        problems = [*missing, *self._only_unchanged(files, unchanged), *self._problems]
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = [f"{len(problems) - _MOST_PROBLEMS} more problems with its outputs"]
        return Collected(tuple(files), tuple(problems), self._remark())

    # The wanted outputs, and those found.

    def _read(self, text: str, is_optional: bool) -> Iterator[FilePattern]:
        """Yield the patterns that a text stands for. A file or folder of exactly this name comes first."""
        named = fill_text(text, self._parameters)
        if self._exists(named):
            yield _exact(named, named, is_optional)
            return
        for one in alternatives(text):  # as they are written, never within a parameter's value
            base = one.removesuffix(f"/{ANY_FOLDERS}")
            named, path = fill_text(one, self._parameters), fill_text(base, self._parameters)
            if problem := _mistake(path):
                self._problems.append(f"its output {_shown((path,))} is no path of its folder: {problem}")
            elif not is_wild(base) or self._exists(path):
                yield _exact(named, path, is_optional)
            elif self._exists(named):
                yield _exact(named, named, is_optional)
            else:  # a value with * in it is no pattern
                names = fill_text(one, self._parameters, quoted=escape).split("/")
                yield FilePattern(named, tuple(names), False, is_optional)

    def _exists(self, path: str) -> bool:
        try:
            return not _mistake(path) and self._mode(path) is not None
        except OSError:
            return False

    def _mode(self, path: str) -> int:
        """Return the mode of a file. Raises OSError (or LinkError) if there is none, or a link leads there."""
        *folders, name = path.split("/")
        with confined_paths.folder(self._folder, folders) as handle:
            place = confined_paths.at(self._folder, (*folders, name), handle)
            return os.stat(place, dir_fd=handle, follow_symlinks=False).st_mode

    def _walk(self, matcher: PatternMatcher, names: Names, places: frozenset[tuple[int, int]]) -> None:
        """Note the regular files that match. Raises _OutputError if there are too many names."""
        try:
            with (
                confined_paths.folder(self._folder, names) as handle,
                os.scandir(self._folder.joinpath(*names) if handle is None else handle) as entries,
            ):
                known = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        except (PermissionError, FileNotFoundError, NotADirectoryError) as error:
            self._problems.append(f"its folder {_shown(names)} cannot be read: {error.strerror}")
            return
        self._seen += len(known)
        if self._seen > MAX_SEEN:
            raise _OutputError(f"its folder holds more than {MAX_SEEN:,} files: use narrower output patterns")
        for name, mode in known:
            self._check_wanted()
            after = matcher.after(places, name)
            if not after or (not names and name in self._excluded):
                continue
            path, matched = (*names, name), matcher.matched(after)
            if S_ISDIR(mode):
                if len(path) < MAX_DEPTH:
                    self._walk(matcher, path, after)
                else:
                    limit = f"{MAX_DEPTH - 1} folders are the limit"
                    self._problems.append(f"its folder {_shown(path)} is too deep: {limit}")
            elif matched and S_ISREG(mode):
                self._found[path] = matched
            elif any(not self._patterns[index].is_exact for index in matched):
                self._links += 1

    def _missing(self, inputs: Mapping[str, InputFile]) -> list[str]:
        """Return why files are missing: a lost result must not look like a success."""
        matched = frozenset[int]().union(*self._found.values())
        unmatched = (pattern for index, pattern in enumerate(self._patterns) if index not in matched)
        patterns = [pattern for pattern in unmatched if not pattern.is_optional]
        named = [f"its output {one.text} {self._why_not('/'.join(one.names))}" for one in patterns if one.is_exact]
        wild = [one.text for one in patterns if not one.is_exact]
        if wild:
            named.append(f"its outputs {', '.join(wild)} matched no file")
        return [f"{'; '.join(named)} (found: {self._listing(patterns[-1], inputs)})"] if named else []

    def _why_not(self, path: str) -> str:
        try:
            mode = self._mode(path)
        except FileNotFoundError:
            return "does not exist"
        except OSError as error:
            in_link = error.errno in (errno.ELOOP, errno.ENOTDIR) or isinstance(error, confined_paths.LinkError)
            return "is behind a link, which is not followed" if in_link else f"cannot be read: {error.strerror}"
        return "is a folder without files" if S_ISDIR(mode) else "is a link or a device, not a file"

    def _listing(self, pattern: FilePattern, inputs: Mapping[str, InputFile]) -> str:
        """Return what the task left in the place where this pattern searches."""
        folder = pattern.names[:-1]
        while folder and not (self._exists("/".join(folder)) and S_ISDIR(self._mode("/".join(folder)))):
            folder = folder[:-1]
        known = {path.split("/")[len(folder)] for path in inputs if _is_within(path, folder)}
        try:
            with (
                confined_paths.folder(self._folder, folder) as handle,
                os.scandir(self._folder.joinpath(*folder) if handle is None else handle) as entries,
            ):
                names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError:
            names = []
        found = [
            _shown((*folder, name)) + ("/" if is_folder else "")
            for name, is_folder in names
            if name not in known and (folder or name not in self._excluded)
        ]
        more = f" and {len(found) - _MOST_FOUND:,} more" if len(found) > _MOST_FOUND else ""
        return f"{', '.join(found[:_MOST_FOUND])}{more}" or "no other files"

    def _only_unchanged(self, files: Sequence[OutputFile], unchanged: Sequence[Names]) -> Iterator[str]:
        """Yield the patterns that matched only unchanged inputs."""
        if not unchanged:
            return
        brought = frozenset[int]().union(*(self._found[tuple(file.path.split("/"))] for file in files))
        for index, pattern in enumerate(self._patterns):
            names = [path for path in unchanged if index in self._found[path]]
            if names and index not in brought and not pattern.is_optional:
                hint = "name a file exactly to bring it unchanged"
                yield f"its outputs {pattern.text} matched only unchanged inputs ({_shown(names[0])}): {hint}"

    def _check_wanted(self) -> None:
        if self.is_unwanted:
            raise OutputsError("its outputs are no longer wanted")

    # Taking it.

    def _take_all(self, inputs: Mapping[str, InputFile]) -> tuple[list[OutputFile], list[Names]]:
        """Move the files that were found into the store; return them, and the paths of unchanged inputs."""
        taken, unchanged, left_bytes, characters = list[OutputFile](), list[Names](), self._limit_bytes, 0
        for names, matched in sorted(self._found.items()):
            is_named = any(self._patterns[index].is_exact for index in matched)
            was = None if is_named else inputs.get("/".join(names))
            try:
                file = self._move_to_store(names, left_bytes, was)
            except _OutputError as problem:
                self._problems.append(str(problem))
                continue
            if file is None:
                unchanged.append(names)
                continue
            characters += len(file.path)
            if excess := _excess(len(taken) + 1, characters):
                self._problems.append(excess)
                break
            left_bytes -= file.size_bytes
            taken.append(file)
        return taken, unchanged

    def _move_to_store(self, names: Names, left_bytes: int, was: InputFile | None) -> OutputFile | None:
        """Move one output into the store under its hash; None if it is an unmodified input."""
        path, moved = _checked(names), self._store / "moving"
        try:
            with confined_paths.folder(self._folder, names[:-1]) as handle:
                source = confined_paths.at(self._folder, names, handle)
                self._check_size(path, left_bytes, os.stat(source, dir_fd=handle, follow_symlinks=False).st_size)
                _move(source, handle, moved)
        except OSError as error:
            if error.errno in _NO_SUCH_PATH:
                raise _OutputError(f"its output {path} was replaced while it was collected") from None
            raise
        status = moved.lstat()
        if not S_ISREG(status.st_mode):
            moved.unlink()
            raise _OutputError(f"its output {path} was replaced while it was collected")
        if was and self._is_unmodified(moved, was):
            moved.unlink()
            return None
        own = self._own(moved, path)
        sha256, size_bytes = self._hash(own), own.stat().st_size
        if size_bytes > left_bytes:
            own.unlink()
        self._check_size(path, left_bytes, size_bytes)
        with own.open("rb+") as file:
            os.fsync(file.fileno())
        own.replace(self._store / sha256)
        return OutputFile(path, sha256, size_bytes, executable=bool(status.st_mode & S_IXUSR))

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
            own.unlink(missing_ok=True)
            raise _OutputError(f"its output {path} cannot be read: {error.strerror}") from None
        finally:
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

    def _check_size(self, path: str, left_bytes: int, size_bytes: int) -> None:
        if size_bytes > left_bytes:
            limit = f"{self._limit_bytes:,} bytes (outputs_limit_bytes of this worker)"
            raise _OutputError(f"its outputs have more than {limit}: {path} is left out")

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


def _exact(text: str, path: str, is_optional: bool) -> FilePattern:
    return FilePattern(text, tuple(path.split("/")), True, is_optional)


def _is_within(path: str, folder: Names) -> bool:
    return tuple(path.split("/")[: len(folder)]) == folder


def _excess(count: int, characters: int) -> str:
    """Return the problem if the files or their names are too many for a result, else empty."""
    if count > MAX_OUTPUT_FILES:
        return f"more than {MAX_OUTPUT_FILES:,} files match its outputs: pack them into one archive"
    if characters > MAX_OUTPUT_NAMES:
        return f"the names of its outputs have more than {MAX_OUTPUT_NAMES:,} characters"
    return ""


def _shown(names: Names) -> str:
    """Return the path for a message: file systems allow names that are no text."""
    path = "/".join(names) or "."
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in path)[:200]


def _mistake(path: str) -> str:
    """Return what is wrong with a path; empty: nothing."""
    try:
        _path.validate_python(path)
    except ValidationError as error:
        return error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
    return ""


def _checked(names: Names) -> str:
    path = "/".join(names)
    if problem := _mistake(path):
        raise _OutputError(f"its output {_shown(names)} has an invalid name: {problem}")
    return path


def _move(source: str, handle: int | None, target: Path) -> None:
    try:
        os.rename(source, target, src_dir_fd=handle)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        opened = os.open(source, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0), dir_fd=handle)
        with os.fdopen(opened, "rb") as original, target.open("xb") as copy:
            shutil.copyfileobj(original, copy, 2**20)
