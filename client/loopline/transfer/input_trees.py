"""Inputs named by ``--input``: files and folders of this computer, as tasks will find them.

A folder includes everything in it but what is excluded (excluded.py). A link counts as the file that it leads to, if
that is within the same folder; a link that leads out of it is an error, and so is a link to a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from stat import S_ISREG, S_IXUSR

from pydantic import TypeAdapter, ValidationError

from loopline.transfer.excluded import Exclusions
from loopline.transfer.files import LocalFile
from loopline_shared.errors import LooplineError
from loopline_shared.paths import RelativePath
from loopline_shared.protocol.templates import fill_text
from loopline_shared.scalar import Scalar
from loopline_shared.spec import MAX_INPUTS

_path: TypeAdapter[str] = TypeAdapter(RelativePath)


def find(wanted: Iterable[str], base: Path = Path(), exclusions: Exclusions | None = None) -> dict[str, LocalFile]:
    """Return the files named by texts such as ``data/``, ``model.bin`` and ``model.bin=name/there``.

    Paths start at ``base``. What is named is always found; ``exclusions`` leave out files and folders within it.
    Raises LooplineError (usage) if a text names no usable file.
    """
    found: dict[str, LocalFile] = {}
    exclusions = exclusions or Exclusions()
    for text in wanted:
        source, name = _split(text, base)
        for place, file in _files(source, name, exclusions):
            if place in found and found[place].path != file.path:
                raise _usage(
                    f"{file.path} and {found[place].path} would both be {place}", "give one another name: x=y"
                )
            found[place] = file
            if len(found) > MAX_INPUTS:
                raise _usage(f"more than {MAX_INPUTS:,} input files", "pack them into one archive, or name fewer")
    return found


def find_filled(text: str, parameters: Mapping[str, Scalar], whose: str) -> dict[str, LocalFile]:
    """Return the files of a task, named by its parameters: ``{line}`` or ``{line}=in.csv``.

    Without a name of their own, tasks find them under the path as it is filled in, as their command says it. Raises
    LooplineError (usage) if there is no such file, or if the path leads out of this folder and no name is given.
    """
    source_text, name_text = _parted(text, lambda part: Path(fill_text(part, parameters)).exists())
    source, name = fill_text(source_text, parameters), fill_text(name_text, parameters)
    path = Path(source)
    if not path.exists():
        raise _usage(f"there is no file or folder {path}, an input of {whose}")
    if not name and (path.is_absolute() or ".." in path.parts):
        raise _usage(f"{path} is not below this folder", f"say where a task finds it: --input '{text}=NAME'")
    return dict(_files(path, name.rstrip("/") or path.as_posix(), Exclusions()))


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


def _files(source: Path, name: str, exclusions: Exclusions) -> Iterator[tuple[str, LocalFile]]:
    if not source.is_dir():
        yield _checked(name or source.name, source), _local(source)
        return
    count = 0
    for path in _walk(source, source, exclusions.within(source)):
        inner = path.relative_to(source).as_posix()
        yield _checked(f"{name}/{inner}" if name else inner, path), _local(path)
        count += 1
    if not count:
        raise _usage(f"the folder {source} has no files in it")


def _walk(folder: Path, root: Path, exclusions: Exclusions) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(folder, error) from None
    for entry in entries:
        path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
        if exclusions.leave_out(path, path.relative_to(root).as_posix(), is_folder=is_folder):
            continue
        if entry.is_symlink():
            _check_link(path, root.resolve())
            yield path
        elif is_folder:
            yield from _walk(path, root, exclusions)
        else:
            yield path


def _check_link(path: Path, root: Path) -> None:
    try:
        target = path.resolve(strict=True)
    except OSError:
        raise _usage(f"{path} is a link that leads nowhere", "remove it, or name the files that you want") from None
    if not target.is_relative_to(root):
        raise _usage(
            f"{path} is a link that leads out of {root}",
            "name what it leads to as an input of its own, or leave it out: --exclude NAME",
        )
    if target.is_dir():
        raise _usage(f"{path} is a link to a folder", "name that folder as an input of its own")


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
