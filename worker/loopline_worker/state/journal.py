"""The journal: the write-ahead log of what the agent has in hand, read by the next agent if this one is killed.

The file is only appended to, a line for each event: runs that came (the master's frame as it was), attempts that
began, results, and attempts that are over because the master has their results. A line is written before anything is
told of it, so that it outlives a ``kill -9``. It is not forced to the disk: what a power failure loses is missing in
the next Report, and the master has it run again (docs/design/architecture.md). Output that is too long for a result
is beside it (spool.py).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol import worker_link
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core.instructions import Entry

log = logging.getLogger(__name__)

_WORTH_CLEANING_BYTES = 2**20
_CAME, _BEGAN, _RESULT, _OVER = b'{"came":%s}\n', b'{"began":%s}\n', b'{"result":%s}\n', b'{"over":%s}\n'
_RESULT_AT = slice(len(b'{"result":'), -len(b"}"))


@dataclass(frozen=True, slots=True)
class _Line:
    """Line of the file, which has one of these fields."""

    came: Assign | None = None
    began: tuple[AttemptId, ...] = ()
    result: Result | None = None
    over: tuple[AttemptId, ...] = ()


class Journal:
    """Journal of an agent. Its content is what its lines say, whether it wrote or read them."""

    def __init__(self, path: Path) -> None:
        """Open the file and read what an earlier agent left. Raises OSError if it cannot be written."""
        self._path = path
        self._waiting: dict[AttemptId, Run] = {}
        self._begun: dict[AttemptId, None] = {}
        self._results: dict[AttemptId, bytes] = {}  # as they are written
        self._sizes: dict[AttemptId, int] = {}  # of what is not over: its share of the file
        self.live_bytes = 0
        self._cleaned_bytes = 0  # its size when it was last cleaned: of one long frame, one long run may count
        self.left_at = path.stat().st_mtime if path.exists() else 0.0  # when an earlier agent wrote its last line
        self._file = path.open("ab", buffering=0)
        self._size_bytes = self._read(path.read_bytes())
        self._file.truncate(self._size_bytes)  # a line that was never finished would spoil the next

    @property
    def waiting(self) -> list[Run]:
        """Return the runs that have not begun, in the order in which they came."""
        return list(self._waiting.values())

    @property
    def begun(self) -> list[AttemptId]:
        """Return the attempts that have begun and have no result."""
        return list(self._begun)

    @property
    def results(self) -> list[Result]:
        """Return the results that the master may lack, the oldest first."""
        return [worker_link.read_result(text) for text in self._results.values()]

    def text(self, result: Result) -> bytes:
        """Return a result as it is sent, which is as it is written."""
        return self._results.get(result.attempt) or worker_link.write_result(result)

    def has(self, result: Result) -> bool:
        """True if exactly this result is on disk."""
        return self._results.get(result.attempt) == worker_link.write_result(result)

    def write(self, entry: Entry) -> None:
        """Append an entry in one piece. Raises OSError if there is no room: nothing is kept but what is over."""
        ended = [(result.attempt, worker_link.write_result(result)) for result in entry.results]
        gone = [attempt for attempt in entry.over if attempt in self._sizes]
        lines = [_RESULT % text for _, text in ended]
        if gone:
            lines.append(_OVER % _list(gone))
        lines += [_CAME % frame.replace(b"\n", b" ") for assign, frame in entry.came if assign.run]
        if entry.began:
            lines.append(_BEGAN % _list(entry.began))
        if not lines:
            return
        try:
            self._append(b"".join(lines))
        except OSError:
            self._over(gone)  # so it is, written or not: a later agent would send it again, which does no harm
            raise
        for attempt, text in ended:
            self._ended(attempt, text)
        self._over(gone)
        for assign, frame in entry.came:
            self._came(assign, len(frame))
        self._began(entry.began)
        if self._size_bytes > 2 * max(_WORTH_CLEANING_BYTES // 2, self.live_bytes, self._cleaned_bytes):
            with suppress(OSError):  # a full disk: it stays as it is
                self._clean()

    def rest(self) -> None:
        """Empty the file if nothing is in hand."""
        if self._size_bytes and not self._sizes and not self._file.closed:
            self._file.truncate(0)
            self._size_bytes = self._cleaned_bytes = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # What a line means.

    def _came(self, assign: Assign, size_bytes: int) -> None:
        for run in assign.run:
            if run.attempt not in self._sizes and run.attempt not in assign.cancel:
                self._waiting[run.attempt] = run
                self._weigh(run.attempt, size_bytes // len(assign.run))

    def _began(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            if attempt not in self._results:
                self._waiting.pop(attempt, None)
                self._begun[attempt] = None
                self._weigh(attempt, len(_BEGAN))

    def _ended(self, attempt: AttemptId, text: bytes) -> None:
        self._waiting.pop(attempt, None)
        self._begun.pop(attempt, None)
        self._results[attempt] = text
        self._weigh(attempt, len(text))

    def _over(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            self._waiting.pop(attempt, None)
            self._begun.pop(attempt, None)
            self._results.pop(attempt, None)
            self.live_bytes -= self._sizes.pop(attempt, 0)

    def _weigh(self, attempt: AttemptId, size_bytes: int) -> None:
        self._sizes[attempt] = self._sizes.get(attempt, 0) + size_bytes
        self.live_bytes += size_bytes

    def _append(self, lines: bytes) -> None:
        """Append all lines, or none. Raises OSError if the disk is full."""
        if self._file.closed:
            self._reopen()
        written = self._file.write(lines)
        if written != len(lines):
            self._file.truncate(self._size_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size_bytes += written

    def _clean(self) -> None:
        """Write the file anew with the lines that still count."""
        unfinished = self._path.with_suffix(".tmp")
        lines = list(self._lines())
        unfinished.write_bytes(b"".join(lines))
        self._file.close()  # Windows replaces no open file
        try:
            unfinished.replace(self._path)
        finally:
            self._reopen()

    def _reopen(self) -> None:
        """Open the file again. Raises OSError if descriptors are exhausted: the next line tries again."""
        self._file = self._path.open("ab", buffering=0)
        self._size_bytes = self._cleaned_bytes = os.fstat(self._file.fileno()).st_size

    def _lines(self) -> Iterator[bytes]:
        yield from (_RESULT % text for text in self._results.values())
        if self._begun:
            yield _BEGAN % _list(self._begun)
        if self._waiting:
            yield _CAME % worker_link.encode(Assign(0, 0, tuple(self._waiting.values())))

    def _read(self, lines: bytes) -> int:
        """Read the lines of an earlier agent. Return how many bytes are whole lines."""
        end = lines.rfind(b"\n") + 1
        texts = lines[:end].split(b"\n")[:-1]
        adapter = TypeAdapter(_Line) if texts else None
        for text in texts:
            try:
                assert adapter
                line = adapter.validate_json(text)
            except ValidationError:
                log.warning("%s: a line that is none was passed over; the master knows what it was", self._path)
                continue
            if line.result:
                self._ended(line.result.attempt, text[_RESULT_AT])
            elif line.came:
                self._came(line.came, len(text))
            self._over(line.over)
            self._began(line.began)
        return end


def _list(attempts: Iterable[AttemptId]) -> bytes:
    return b'["%s"]' % '","'.join(map(str, attempts)).encode()
