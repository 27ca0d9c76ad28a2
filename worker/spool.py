"""Results on disk, from before they are sent until the master has them on its own disk.

One file per result (``12.3.1.json``), and beside it what the task wrote where that is too long to be in the result
(``12.3.1.stdout``, ``12.3.1.stderr``). Files of an attempt without a result are leftovers of a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from shared.model import AttemptId, Result

log = logging.getLogger(__name__)

_adapter = TypeAdapter(Result)
_STREAMS = ("stdout", "stderr")


class Spool:
    """One agent's; ``limit_bytes`` is when it counts as full, never a reason to drop a result."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._sizes: dict[AttemptId, int] = {}
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
                for suffix in ("json", *_STREAMS):  # in this order: outputs alone are leftovers
                    with suppress(FileNotFoundError):
                        os.unlink(f"{self._folder}/{attempt}.{suffix}")  # noqa: PTH108 - once for every task

    def output_files(self, attempt: AttemptId) -> tuple[Path, Path]:
        """Where long output goes: of stdout, of stderr."""
        return self._file(attempt, "stdout"), self._file(attempt, "stderr")

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
        files = (self._file(attempt, suffix) for suffix in ("json", *_STREAMS))
        self._sizes[attempt] = sum(file.stat().st_size for file in files if file.exists())

    def _clear_leftovers(self, known: set[AttemptId]) -> None:
        names = {f"{attempt}.{suffix}" for attempt in known for suffix in ("json", *_STREAMS)}
        for file in self._folder.iterdir():
            if file.is_file() and file.name not in names:
                file.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename durable; Windows has no such thing."""
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
