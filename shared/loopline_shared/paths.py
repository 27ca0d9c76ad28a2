"""Names of files in a task's scratch folder: relative, portable, and confined to it.

They are checked wherever they come from outside: from a user's job, from a worker's result, from a master's answer.
Paths are POSIX paths (``data/x.csv``) on every system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

MAX_PATH_CHARACTERS = 500
MAX_DEPTH = 40
MAX_NAME_BYTES = 255
"""Longest name of a file or folder that file systems accept."""

ANY_FOLDERS = "**"
MAX_ANY_FOLDERS = 2
"""Maximum number of ``**`` in a pattern: each one multiplies the steps of matching."""
MAX_ALTERNATIVES = 100
"""Maximum number of patterns that the braces of one pattern may stand for."""

TEMPORARY = ".tmp"
"""Name of a task's private folder for temporary files, inside its scratch folder."""
CHECKPOINT = ".checkpoint"
"""Name of the folder inside its scratch folder where a task with checkpoints saves its state."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_DRIVE = re.compile(r"[A-Za-z]:")
_WILD = re.compile(r"[*?\[\]]")


def _check(path: str) -> str:
    """Return the path. Raises ValueError that names the mistake."""
    shown = repr(path[:80])
    if found := _FORBIDDEN.search(path):
        raise ValueError(f"{shown} has the character {found[0]!r} in it: only plain names, with / between them")
    if path.startswith("/"):
        raise ValueError(f"{shown} begins with /: a path must be relative to the scratch folder")
    names = path.split("/")
    if len(names) > MAX_DEPTH:
        raise ValueError(f"{shown} is {len(names)} folders deep, the limit is {MAX_DEPTH}")
    for name in names:
        _check_name(name, shown)
    if names[0] == TEMPORARY:
        raise ValueError(f"{shown}: {TEMPORARY} is where the task's temporary files go")
    return path


def _check_name(name: str, shown: str) -> None:
    if name in (".", ".."):
        raise ValueError(f"{shown} has {name!r} in it: a path must not leave the scratch folder")
    if not name:
        raise ValueError(f"{shown} has an empty name in it: write a/b, without a / at its end")
    if _DRIVE.match(name):
        raise ValueError(f"{shown} names a drive of Windows: a path must be relative to the scratch folder")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"{shown} has a name of more than {MAX_NAME_BYTES} bytes in it")


def _check_pattern(pattern: str) -> str:
    for alternative in alternatives(pattern):
        _check(alternative)
        if alternative.split("/").count(ANY_FOLDERS) > MAX_ANY_FOLDERS:
            raise ValueError(f"{pattern[:80]!r} has ** in it more than {MAX_ANY_FOLDERS} times")
    return pattern


def _without_last_slash(pattern: object) -> object:
    """Return ``out`` for ``out/``, as people write the name of a folder."""
    return pattern.rstrip("/") if isinstance(pattern, str) and pattern.strip("/") else pattern


RelativePath = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PATH_CHARACTERS, description="relative, with / between names"),
    AfterValidator(_check),
]
"""Path of a file in a scratch folder."""
Pattern = Annotated[RelativePath, AfterValidator(_check_pattern), BeforeValidator(_without_last_slash)]
"""Path with wildcards: ``*``, ``?`` and ``[abc]`` within a name; ``**`` as a name stands for any folders; and braces:
``{a,b}`` stands for ``a`` and ``b``.
"""


def is_wild(pattern: str) -> bool:
    """True if the pattern contains a wildcard."""
    return _WILD.search(pattern) is not None


def alternatives(pattern: str) -> list[str]:
    """Return the patterns that a pattern with braces stands for, as a shell does: ``*.{csv,log}`` for two.

    Braces without a comma in them, and those without a partner, are plain characters. Raises ValueError if it stands
    for more than MAX_ALTERNATIVES patterns.
    """
    if (found := _first_braces(pattern)) is None:
        return [pattern]
    start, words, end = found
    rests = alternatives(pattern[end:])
    expanded = [f"{pattern[:start]}{inner}{rest}" for word in words for inner in alternatives(word) for rest in rests]
    if len(expanded) > MAX_ALTERNATIVES:
        raise ValueError(f"{pattern[:80]!r} stands for more than {MAX_ALTERNATIVES} patterns: name fewer in braces")
    return list(dict.fromkeys(expanded))


def _first_braces(pattern: str) -> tuple[int, list[str], int] | None:
    """Return the first braces with a comma between them: where they start, the words in them, and where they end."""
    opened: list[tuple[int, list[int]]] = []  # braces that are not closed yet, with their commas
    outermost: tuple[int, list[str], int] | None = None
    for index, character in enumerate(pattern):
        if character == "{":
            opened.append((index, []))
        elif character == "," and opened:
            opened[-1][1].append(index)
        elif character == "}" and opened:
            start, commas = opened.pop()
            if not commas or (outermost and outermost[0] < start):
                continue
            ends = [start, *commas, index]
            words = [pattern[one + 1 : other] for one, other in pairwise(ends)]
            outermost = (start, words, index + 1)
            if not opened:
                return outermost
    return outermost


@dataclass(frozen=True, slots=True)
class PathTree:
    """Files and the folders that contain them."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


def tree_of(paths: Iterable[str], empty: Iterable[str] = (), beside: PathTree = PathTree()) -> PathTree:
    """Return the tree of these files and ``empty`` folders. Raises ValueError if a path would be file and folder,
    also together with ``beside``.
    """
    files = frozenset(paths)
    within = (*files, *(f"{folder}/" for folder in empty))
    folders = {folder: path for path in within for folder in _folders_of(path)}
    for folder, path in folders.items():
        if folder in files or folder in beside.files:
            raise ValueError(f"{path!r} cannot be in {folder!r}, which is a file")
    for path in files:
        if path in beside.folders:
            raise ValueError(f"{path!r} cannot be a file: others are in it")
    return PathTree(files, frozenset(folders))


def stays_within(path: str, link: str) -> bool:
    """True if a link with this path leads to a place of its own tree, as written."""
    folders = path.split("/")[:-1]
    for name in link.split("/"):
        if name == ".." and not folders:
            return False
        if name == "..":
            folders.pop()
        elif name not in ("", "."):
            folders.append(name)
    return True


def alike(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that Windows and macOS take for the same; None if all differ."""
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(path.casefold(), path)
        if other != path:
            return other, path
    return None


def _folders_of(path: str) -> Iterator[str]:
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)
