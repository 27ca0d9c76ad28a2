"""Inputs named by ``--input``: files and folders of this computer, as tasks will find them.

A folder includes everything in it but what is excluded (excluded.py), empty folders too. A link within it stays a
link. A link that leads out of it is an error, unless links are followed: then its target takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from stat import S_ISREG, S_IXUSR

from pydantic import TypeAdapter, ValidationError

from loopline.transfer.excluded import Exclusions
from loopline.transfer.files import LocalFile
from loopline_shared.errors import LooplineError
from loopline_shared.paths import RelativePath, stays_within
from loopline_shared.protocol.templates import fill_text
from loopline_shared.scalar import Scalar
from loopline_shared.spec import MAX_INPUTS

_MOST_NAMED = 5
_path: TypeAdapter[str] = TypeAdapter(RelativePath)


def find(
    wanted: Iterable[str], base: Path = Path(), exclusions: Exclusions | None = None, *, follow_links: bool = False
) -> dict[str, LocalFile]:
    """Return the files named by texts such as ``data/``, ``model.bin`` and ``model.bin=name/there``.

    Paths start at ``base``. What is named is always found; ``exclusions`` leave out files and folders within it.
    ``follow_links``: links that lead out of a folder are replaced by their targets. Raises LooplineError (usage) if a
    text names no usable file.
    """
    found: dict[str, LocalFile] = {}
    exclusions = exclusions or Exclusions()
    for text in wanted:
        source, name = _split(text, base)
        for place, file in _files(source, name, exclusions, follow_links):
            if place in found and found[place].path != file.path:
                raise _usage(
                    f"{file.path} and {found[place].path} would both be {place}", "give one another name: x=y"
                )
            found[place] = file
            _check_count(len(found))
    return found


class FilledTrees:
    """Finds files of tasks, named by their parameters: ``{line}`` or ``{line}=in.csv``."""

    def __init__(self, exclusions: Exclusions, *, follow_links: bool = False) -> None:
        self._exclusions, self._follow_links = exclusions, follow_links

    def find(self, text: str, base: Path, parameters: Mapping[str, Scalar], whose: str) -> dict[str, LocalFile]:
        """Return the files of one task. Paths start at ``base``.

        Without a name of their own, tasks find them under the path as it is filled in, as their command says it.
        Raises LooplineError (usage) if there is no such file, or if the path leads out of ``base`` and no name is
        given.
        """
        source_text, name_text = _parted(text, lambda part: (base / fill_text(part, parameters)).exists())
        source, name = fill_text(source_text, parameters), fill_text(name_text, parameters)
        path, inner = base / source, Path(source)
        if not path.exists():
            raise _usage(f"there is no file or folder {path}, an input of {whose}")
        if not name and (inner.is_absolute() or ".." in inner.parts):
            raise _usage(f"{inner} is not below this folder", f"say where a task finds it: --input '{text}=NAME'")
        return dict(_files(path, name.rstrip("/") or inner.as_posix(), self._exclusions, self._follow_links))


def _parted(text: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    """Return FILE and NAME of ``FILE=NAME``, each of which may hold ``=``: the longest FILE that exists."""
    ends = [place for place, letter in enumerate(text) if letter == "="]
    for end in (len(text), *reversed(ends)):
        if text[:end] and exists(text[:end]):
            return text[:end], text[end + 1 :]
    source, _, name = text.partition("=")
    return source, name


def _split(text: str, base: Path) -> tuple[Path, str]:
    """Return the path, and its name in the scratch folder. If that is empty, the contents go to the top."""
    source, name = _parted(text, lambda part: (base / part).exists())
    if not source:
        raise _usage(f"expected FILE or FILE=NAME, got {text!r}")
    path = base / source
    if not path.exists():
        raise _usage(f"there is no file or folder {path}{f' nor {base / text}' if '=' in text else ''}")
    if not name and source.rstrip("/\\") != ".":
        name = path.name if path.name not in ("", "..") else path.resolve().name
    return path, name.rstrip("/")


def _files(source: Path, name: str, exclusions: Exclusions, follow_links: bool) -> Iterator[tuple[str, LocalFile]]:
    if not source.is_dir():
        yield _checked(name or source.name, source), _local(source)
        return
    found = _Tree(source, exclusions.within(source), follow_links).read()
    if not found and not name:
        raise _usage(f"the folder {source} has no files in it")
    if not found:
        yield _checked(name, source), LocalFile(source, 0, is_folder=True)
    for inner, file in found.items():
        yield _checked(f"{name}/{inner}" if name else inner, file.path), file


class _Tree:
    """Reads one input folder."""

    def __init__(self, root: Path, exclusions: Exclusions, follow_links: bool) -> None:
        self._root, self._exclusions, self._follow_links = root, exclusions, follow_links
        self._real_root = root.resolve()
        self._found: dict[str, LocalFile] = {}
        self._targets: dict[str, str] = {}  # of links, by path
        self._outside: list[Path] = []

    def read(self) -> dict[str, LocalFile]:
        """Return the files, links and empty folders by their paths in the folder. Raises LooplineError (usage)."""
        self._walk(self._root, (self._real_root,))
        if self._outside:
            paths = [path.as_posix() for path in self._outside]
            verb = "is a link that leads" if len(paths) == 1 else "are links that lead"
            raise _usage(
                f"{named(paths)} {verb} out of {self._real_root}",
                "--follow-links sends what such links lead to; --exclude NAME leaves one out",
            )
        for path in self._dangling():
            self._exclusions.left_out.append(self._found.pop(path).path.as_posix())
        return self._found

    def _walk(self, folder: Path, real: tuple[Path, ...]) -> None:
        """Read one folder; ``real``: where it and the folders around it really are."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise _unreadable(folder, error) from None
        before = len(self._found)
        for entry in entries:
            path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
            inner = path.relative_to(self._root).as_posix()
            if self._exclusions.leave_out(path, inner, is_folder=is_folder):
                continue
            if entry.is_symlink():
                self._add_link(path, inner, real)
            elif is_folder:
                self._walk(path, (*real, real[-1] / entry.name))
            else:
                self._add(inner, _local(path))
        if len(self._found) == before and folder != self._root:
            self._add(folder.relative_to(self._root).as_posix(), LocalFile(folder, 0, is_folder=True))

    def _add(self, inner: str, file: LocalFile) -> None:
        self._found[inner] = file
        _check_count(len(self._found))

    def _add_link(self, path: Path, inner: str, real: tuple[Path, ...]) -> None:
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):  # the latter: links that lead to one another
            raise _usage(
                f"{path} is a link that leads nowhere", "remove it, or leave it out: --exclude NAME"
            ) from None
        if target.is_relative_to(self._real_root):
            self._targets[inner] = target.relative_to(self._real_root).as_posix()
            self._add(inner, LocalFile(path, 0, link=_relative(path, inner, target)))
        elif not self._follow_links:
            self._outside.append(path)
        elif not target.is_dir():
            self._add(inner, _local(path))
        elif any(folder.is_relative_to(target) for folder in real):
            raise _usage(f"{path} is a link to a folder that it is in", "leave it out: --exclude NAME")
        else:
            self._walk(path, (*real, target))

    def _dangling(self) -> Iterable[str]:
        """Return the links whose targets are left out."""
        places = {"."}
        for inner in self._found:
            places.update((inner, *(parent.as_posix() for parent in PurePosixPath(inner).parents)))
        return [inner for inner, target in self._targets.items() if target not in places]


def _relative(path: Path, inner: str, target: Path) -> str:
    """Return what a link says; if it is absolute, or leaves its input folder on its way, the shortest way instead."""
    text = path.readlink()
    if not text.is_absolute() and stays_within(inner, text.as_posix()):
        return text.as_posix()
    return Path(os.path.relpath(target, path.parent.resolve())).as_posix()


def _check_count(count: int) -> None:
    if count > MAX_INPUTS:
        raise _usage(f"more than {MAX_INPUTS:,} input files", "pack them into one archive, or name fewer")


def named(paths: Sequence[str]) -> str:
    """Return the first few of these paths for a message, and how many more there are."""
    more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(paths[:_MOST_NAMED]) + more


def _local(path: Path) -> LocalFile:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None
    if not S_ISREG(status.st_mode):
        raise _usage(f"{path} is not a file", "only files and folders can be inputs")
    return LocalFile(path, status.st_size, executable=os.name == "posix" and bool(status.st_mode & S_IXUSR))


def _checked(name: str, path: Path) -> str:
    try:
        return _path.validate_python(name)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise _usage(f"{path} cannot be an input: {reason}", "give it another name: FILE=NAME") from None


def _unreadable(path: Path, error: OSError) -> LooplineError:
    return _usage(f"cannot read {path}: {error.strerror or error}")


def _usage(message: str, hint: str = "") -> LooplineError:
    return LooplineError("usage", message, hint)
