"""What is too long for a result, on disk from before the result is sent until the master has it.

Beside the journal, which has the results themselves: what a task wrote (``12.3.1.stdout``, ``12.3.1.stderr``), what a
function returned (``12.3.1.value``), and a folder of the files that it left, by content (``12.3.1.files``). What
there is of an attempt without a result is left over from a crash.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_worker.core.reporting import names_files

_SUFFIXES = _STDOUT, _STDERR, _VALUE, _FILES = "stdout", "stderr", "value", "files"


class Spool:
    """One agent's; ``limit_bytes`` is when it counts as full, never a reason to drop a result."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._named: dict[AttemptId, tuple[list[str], int]] = {}  # what there is of each, by suffix; its bytes
        self.size_bytes = 0
        folder.mkdir(parents=True, exist_ok=True)

    def is_full(self, beside_bytes: int = 0) -> bool:
        """With so much that is kept elsewhere."""
        return self.size_bytes + beside_bytes > self._limit_bytes

    def keep(self, result: Result) -> None:
        """What there is of this result stays until it is forgotten."""
        suffixes = _named_by(result) if result.outcome is Outcome.SUCCEEDED else self._found(result.attempt)
        if not suffixes or result.attempt in self._named:
            return
        size_bytes = sum(_weight(self._file(result.attempt, suffix)) for suffix in suffixes)
        self._named[result.attempt] = suffixes, size_bytes
        self.size_bytes += size_bytes

    def forget(self, attempts: Iterable[AttemptId]) -> None:
        """What cannot be removed is left to the next agent."""
        for attempt in attempts:
            suffixes, size_bytes = self._named.pop(attempt, ((), 0))
            self.size_bytes -= size_bytes
            for suffix in suffixes:
                _remove(self._file(attempt, suffix))

    def clear(self, known: Iterable[Result]) -> None:
        """Remove whatever none of these names; what they name is kept."""
        results = list(known)
        for result in results:
            self.keep(result)
        names = {f"{attempt}.{suffix}" for attempt, (suffixes, _) in self._named.items() for suffix in suffixes}
        for file in self._folder.iterdir():
            if file.name not in names and (file.is_file() or file.suffix == f".{_FILES}"):
                _remove(file)

    def output_files(self, attempt: AttemptId) -> tuple[Path, Path]:
        """Where long output goes: of stdout, of stderr."""
        return self._file(attempt, _STDOUT), self._file(attempt, _STDERR)

    def value_file(self, attempt: AttemptId) -> Path:
        """Where a long value goes, of a function."""
        return self._file(attempt, _VALUE)

    def files_folder(self, attempt: AttemptId) -> Path:
        """Where the files go that a task left, named by their SHA-256; made by who has any."""
        return self._file(attempt, _FILES)

    def _file(self, attempt: AttemptId, suffix: str) -> Path:
        return self._folder / f"{attempt}.{suffix}"

    def _found(self, attempt: AttemptId) -> list[str]:
        """Of what came to nothing there may be more than its result says."""
        return [suffix for suffix in _SUFFIXES if self._file(attempt, suffix).exists()]


def _named_by(result: Result) -> list[str]:
    if not names_files(result):
        return []
    value = result.value and result.value.sha256
    named = (result.stdout.sha256, result.stderr.sha256, value, result.outputs)
    return [suffix for suffix, names in zip(_SUFFIXES, named, strict=True) if names]


def _weight(file: Path) -> int:
    with suppress(OSError):  # lost: whoever sends it will see
        return sum(each.stat().st_size for each in (file.iterdir() if file.is_dir() else (file,)))
    return 0


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file, ignore_errors=True)
    else:
        with suppress(OSError):
            file.unlink(missing_ok=True)
