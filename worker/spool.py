"""Results on disk, from before they are sent until the master has them on its own disk.

One file per result (``12.3.1.json``), and beside it what the task wrote where that is too long to be in the result
(``12.3.1.stdout``, ``12.3.1.stderr``, ``12.3.1.value``), and a folder of the files that it left, by content
(``12.3.1.files``). What there is of an attempt without a result is left over from a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from shared.model import AttemptId, Result

log = logging.getLogger(__name__)

_adapter = TypeAdapter(Result)
_VALUE = "value"
_FILES = "files"
_BESIDE = ("stdout", "stderr", _VALUE)


class Spool:
    """One agent's; ``limit_bytes`` is when it counts as full, never a reason to drop a result."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._sizes: dict[AttemptId, int] = {}
        self._there: dict[AttemptId, list[str]] = {}  # what there is of each, by suffix
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def is_full(self) -> bool:
        return self.size_bytes > self._limit_bytes

    def load(self) -> list[Result]:
        """What an earlier agent left, oldest first. Whatever is no result is moved to ``bad/``, with a warning."""
        files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
        results = [result for file in files if (result := self._read(file))]
        for result in results:
            self._weigh(result.attempt)
        self._clear_leftovers({result.attempt for result in results})
        return results

    async def put(self, result: Result) -> None:
        """Durable on return. OSError where the disk does not take it."""
        await asyncio.to_thread(self._write, result)
        self._weigh(result.attempt)

    def forget(self, attempts: Iterable[AttemptId]) -> None:
        """What cannot be removed is sent once more by the next agent, which harms nobody."""
        for attempt in attempts:
            if self._sizes.pop(attempt, None) is None:
                continue  # it never was here: nothing of it ran
            with suppress(OSError):
                for suffix in self._there.pop(attempt, ()):  # the result first: outputs alone are leftovers
                    if suffix == _FILES:
                        shutil.rmtree(self.files_folder(attempt), ignore_errors=True)
                    else:
                        self._file(attempt, suffix).unlink(missing_ok=True)
            self._sizes.pop(attempt, None)

    def output_files(self, attempt: AttemptId) -> tuple[Path, Path]:
        """Where long output goes: of stdout, of stderr."""
        return self._file(attempt, "stdout"), self._file(attempt, "stderr")

    def value_file(self, attempt: AttemptId) -> Path:
        """Where a long value goes, of a function."""
        return self._file(attempt, _VALUE)

    def files_folder(self, attempt: AttemptId) -> Path:
        """Where the files go that a task left, named by their SHA-256; made by who has any."""
        return self._file(attempt, _FILES)

    def _file(self, attempt: AttemptId, suffix: str) -> Path:
        return self._folder / f"{attempt}.{suffix}"

    def _write(self, result: Result) -> None:
        file = self._file(result.attempt, "json")
        unfinished = file.with_suffix(".tmp")
        with unfinished.open("wb") as stream:
            stream.write(_adapter.dump_json(result))
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
        sync_folder(self._folder)

    def _read(self, file: Path) -> Result | None:
        try:
            result = _adapter.validate_json(file.read_bytes())
            if file.name == f"{result.attempt}.json":
                return result
            reason = f"it is about attempt {result.attempt}"
        except (OSError, ValidationError) as error:
            reason = str(error).partition("\n")[0]
        bad = self._folder / "bad"
        log.warning("%s is not a result (%s): moved to %s", file, reason, bad)
        bad.mkdir(exist_ok=True)
        file.replace(bad / file.name)
        return None

    def _weigh(self, attempt: AttemptId) -> None:
        suffixes = [suffix for suffix in ("json", *_BESIDE, _FILES) if self._file(attempt, suffix).exists()]
        files = [self._file(attempt, suffix) for suffix in suffixes if suffix != _FILES]
        left = self.files_folder(attempt).iterdir() if _FILES in suffixes else ()
        self._there[attempt] = suffixes
        self._sizes[attempt] = sum(file.stat().st_size for file in (*files, *left))

    def _clear_leftovers(self, known: set[AttemptId]) -> None:
        attempts = {str(attempt) for attempt in known}
        names = {f"{attempt}.{suffix}" for attempt in attempts for suffix in ("json", *_BESIDE)}
        for file in self._folder.iterdir():
            if file.is_file() and file.name not in names:
                file.unlink()
            elif file.suffix == f".{_FILES}" and file.stem not in attempts:
                shutil.rmtree(file, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make a rename durable; Windows has no such thing."""
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
