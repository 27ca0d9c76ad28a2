"""Files and folders that an input folder does not bring along: by default, by ``.looplineignore``, and by options."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from loopline_shared.errors import LooplineError

IGNORE_FILE = ".looplineignore"
DEFAULT = (".git", "__pycache__", ".#*", ".~lock.*#", ".*.sw[op]")
"""Version control, caches of Python, and locks of editors. Virtual environments are known by their pyvenv.cfg."""
_ENVIRONMENT = "pyvenv.cfg"


class Exclusions:
    """Patterns of names to leave out, as in ``.gitignore``; it notes what it has left out."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = [*DEFAULT, *_read(patterns)]
        self.left_out: list[str] = []

    def within(self, folder: Path) -> Exclusions:
        """Return these and those of the folder's own file, which share the note."""
        file = folder / IGNORE_FILE
        if not file.is_file():
            return self
        inner = Exclusions()
        inner._patterns, inner.left_out = [*self._patterns, IGNORE_FILE, *read_patterns(file)], self.left_out
        return inner

    def leave_out(self, path: Path, inner: str, *, is_folder: bool) -> bool:
        """True if a file or folder is left out. The last match counts; ``inner`` is its path in the input folder."""
        is_out = is_folder and os.path.exists(path / _ENVIRONMENT)  # noqa: PTH110
        for pattern in self._patterns:
            if _matches(pattern.removeprefix("!"), inner, is_folder=is_folder):
                is_out = not pattern.startswith("!")
        if is_out:
            self.left_out.append(f"{path.as_posix()}{'/' if is_folder else ''}")
        return is_out


def read_patterns(file: Path) -> list[str]:
    """Return the patterns of a file, one a line. Raises LooplineError (usage) if it cannot be read."""
    try:
        return _read(file.read_text("utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise LooplineError("usage", f"cannot read {file}: {error}", "one pattern a line, as text in UTF-8") from None


def _read(lines: Iterable[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _matches(pattern: str, inner: str, *, is_folder: bool) -> bool:
    if pattern.endswith("/") and not is_folder:
        return False
    pattern = pattern.rstrip("/")
    if "/" not in pattern:
        return fnmatchcase(inner.rpartition("/")[2], pattern)
    pattern = pattern.removeprefix("/")
    return fnmatchcase(inner, pattern) or (pattern.startswith("**/") and fnmatchcase(inner, pattern[3:]))
