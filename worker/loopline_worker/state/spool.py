"""The spool: output that is too long for a result, on disk until the master has it.

The journal has the results themselves. The spool has what a task wrote (``12.3.1.stdout``, ``12.3.1.stderr``), what a
function returned (``12.3.1.value``), and a folder of the output files, by content (``12.3.1.files``). Files of an
attempt without a result are left over from a crash.
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
    """Spool of an agent. It counts as full beyond ``limit_bytes``, but no result is dropped for that."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._named: dict[AttemptId, tuple[list[str], int]] = {}  # what there is of each, by suffix; its bytes
        self.size_bytes = 0
        folder.mkdir(parents=True, exist_ok=True)

    def is_full(self, beside_bytes: int = 0) -> bool:
        """True if the spool is full, together with so many bytes that are kept elsewhere."""
        return self.size_bytes + beside_bytes > self._limit_bytes

    def keep(self, result: Result) -> None:
        """Keep the files of this result until it is forgotten."""
        suffixes = _named_by(result) if result.outcome is Outcome.SUCCEEDED else self._found(result.attempt)
        if not suffixes or result.attempt in self._named:
            return
        size_bytes = sum(_weight(self._file(result.attempt, suffix)) for suffix in suffixes)
        self._named[result.attempt] = suffixes, size_bytes
        self.size_bytes += size_bytes

    def forget(self, attempts: Iterable[AttemptId]) -> None:
        """Remove the files of these attempts; the next agent removes what is left."""
        for attempt in attempts:
            suffixes, size_bytes = self._named.pop(attempt, ((), 0))
            self.size_bytes -= size_bytes
            for suffix in suffixes:
                _remove(self._file(attempt, suffix))

    def clear(self, known: Iterable[Result]) -> None:
        """Keep the files that these results name, and remove all others."""
        results = list(known)
        for result in results:
            self.keep(result)
        names = {f"{attempt}.{suffix}" for attempt, (suffixes, _) in self._named.items() for suffix in suffixes}
        for file in self._folder.iterdir():
            if file.name not in names and (file.is_file() or file.suffix == f".{_FILES}"):
                _remove(file)

    def output_files(self, attempt: AttemptId) -> tuple[Path, Path]:
        """Return the files for long output: of stdout, of stderr."""
        return self._file(attempt, _STDOUT), self._file(attempt, _STDERR)

    def value_file(self, attempt: AttemptId) -> Path:
        """Return the file for a long value of a function."""
        return self._file(attempt, _VALUE)

    def files_folder(self, attempt: AttemptId) -> Path:
        """Return the folder for output files, named by their SHA-256. The caller makes it."""
        return self._file(attempt, _FILES)

    def _file(self, attempt: AttemptId, suffix: str) -> Path:
        return self._folder / f"{attempt}.{suffix}"

    def _found(self, attempt: AttemptId) -> list[str]:
        """Return the suffixes of all files there are: a failed attempt may have more than its result names."""
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
