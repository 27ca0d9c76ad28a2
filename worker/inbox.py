"""What the master has sent and has no result of yet, on disk: an agent that is killed leaves to the next one what it
had still to do, in the order in which it came.

One file that is only appended to: a line for each run that came, for each attempt that began, for each that is over.
Runs are forced to the disk, once for each Assign, before the master hears that they are here. The other lines are
not: what a computer that fails loses of them makes an attempt wait again that the master does not want any more.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from shared.model import AttemptId
from shared.protocol.messages import Run
from worker.spool import sync_folder

log = logging.getLogger(__name__)

_WORTH_CLEANING_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class _Line:
    """One of these."""

    run: Run | None = None
    began: AttemptId | None = None
    over: AttemptId | None = None


_line: TypeAdapter[_Line] = TypeAdapter(_Line)
_run: TypeAdapter[Run] = TypeAdapter(Run)


class Inbox:
    """One agent's, in its data folder."""

    def __init__(self, path: Path) -> None:
        """OSError where the file cannot be written. What an earlier agent left is read at once."""
        self._path = path
        self._runs: dict[AttemptId, bytes] = {}  # lines, in the order in which they came
        self._begun: dict[AttemptId, None] = {}
        self._is_dirty = False
        self._syncing = asyncio.Lock()
        left = path.read_bytes() if path.exists() else b""
        self._read(left)
        self._size_bytes = self._live_bytes = len(left)
        self._file = path.open("ab", buffering=0)
        if left:
            with suppress(OSError):  # a full disk: it stays as it is
                self._clean()

    def left(self) -> tuple[list[Run], list[AttemptId]]:
        """What has not begun, and what has; each in the order in which it came."""
        waiting = (line for attempt, line in self._runs.items() if attempt not in self._begun)
        return [run for line in waiting if (run := _line.validate_json(line).run)], list(self._begun)

    def took(self, runs: Iterable[Run]) -> None:
        """These came, unless they are known; ``settle`` before the master hears of it. OSError: no room."""
        lines = {run.attempt: b'{"run":%s}\n' % _run.dump_json(run) for run in runs if run.attempt not in self._runs}
        if not lines:
            return
        self._append(b"".join(lines.values()))
        self._runs |= lines
        self._live_bytes += sum(map(len, lines.values()))
        self._is_dirty = True

    def began(self, attempt: AttemptId) -> None:
        if attempt in self._runs:
            self._begun[attempt] = None
            with suppress(OSError):
                self._append(b'{"began":"%s"}\n' % str(attempt).encode())

    def over(self, attempts: Iterable[AttemptId]) -> None:
        """The master has their results."""
        gone = [(attempt, line) for attempt in attempts if (line := self._runs.pop(attempt, None))]
        for attempt, line in gone:
            self._begun.pop(attempt, None)
            self._live_bytes -= len(line)
        with suppress(OSError):
            if gone and not self._runs:
                self._file.truncate(0)
                self._size_bytes = 0
            elif gone:
                self._append(b"".join(b'{"over":"%s"}\n' % str(attempt).encode() for attempt, _ in gone))
                if self._size_bytes > max(_WORTH_CLEANING_BYTES, 2 * self._live_bytes) and not self._syncing.locked():
                    self._clean()

    async def settle(self) -> None:
        """All that came so far is on disk. OSError where it cannot be."""
        async with self._syncing:
            while self._is_dirty:
                self._is_dirty = False
                try:
                    await asyncio.to_thread(os.fsync, self._file.fileno())
                except OSError:
                    self._is_dirty = True
                    raise

    def close(self) -> None:
        self._file.close()

    def _append(self, lines: bytes) -> None:
        """All of it, or nothing."""
        written = self._file.write(lines)
        if written != len(lines):
            self._file.truncate(self._size_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size_bytes += written

    def _clean(self) -> None:
        """Anew, with nothing but what counts; at a start also without a line that was never finished."""
        unfinished = self._path.with_suffix(".tmp")
        with unfinished.open("wb") as stream:
            stream.writelines(self._runs.values())
            stream.writelines(b'{"began":"%s"}\n' % str(attempt).encode() for attempt in self._begun)
            stream.flush()
            os.fsync(stream.fileno())
        self._file.close()  # Windows replaces no open file
        try:
            unfinished.replace(self._path)
            sync_folder(self._path.parent)
        finally:
            self._file = self._path.open("ab", buffering=0)
            self._size_bytes = self._path.stat().st_size
        self._live_bytes = sum(map(len, self._runs.values()))

    def _read(self, lines: bytes) -> None:
        for text in lines.splitlines(keepends=True):
            try:
                line = _line.validate_json(text)
            except ValidationError:
                log.warning("%s: a line that is none was passed over; the master knows what it was", self._path)
                continue
            if line.run:
                self._runs[line.run.attempt] = text
            elif line.began in self._runs:
                self._begun[line.began] = None
            elif line.over in self._runs:
                del self._runs[line.over]
                self._begun.pop(line.over, None)
