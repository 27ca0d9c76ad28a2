"""The journal and its spool: the agent's state on disk, for the next agent if this one is killed.

The journal is a write-ahead log, a file that is only appended to. Each event has a line: runs that came (the master's
frame as it was), attempts that began, results, attempts that are over because the master has their results, and the
life of the master's database that they belong to. A line is written before its event is reported, so that it survives
a ``kill -9``. It is not synced: lines lost in a power failure are missing in the next Report, and the master runs
those tasks again (docs/design/architecture.md).

The spool has output that is too long for a result: output of the task (``12.3.1.stdout``, ``12.3.1.stderr``), value
of a function (``12.3.1.value``), and a folder of the output files, by content (``12.3.1.files``). Files of an attempt
without a result are left over from a crash.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol import link_session
from loopline_shared.protocol.worker_link import NAMES_OF_SECRETS, Assign, Run
from loopline_worker.core.attempts import names_files
from loopline_worker.core.instructions import Entry

log = logging.getLogger(__name__)

SPOOL_LIMIT_BYTES = 2**30
"""Results kept for an absent master; beyond them, a worker offers no slots."""
_WORTH_CLEANING_BYTES = 2**20
_CAME, _BEGAN, _RESULT, _OVER = b'{"came":%s}\n', b'{"began":%s}\n', b'{"result":%s}\n', b'{"over":%s}\n'
_LIFE = b'{"life":%s}\n'
_RESULT_AT = slice(len(b'{"result":'), -len(b"}"))
_SUFFIXES = _STDOUT, _STDERR, _VALUE, _FILES = "stdout", "stderr", "value", "files"


@dataclass(frozen=True, slots=True)
class _Line:
    """Line of the file, which has one of these fields."""

    came: Assign | None = None
    began: tuple[AttemptId, ...] = ()
    result: Result | None = None
    over: tuple[AttemptId, ...] = ()
    life: str = ""


class Journal:
    """Journal of an agent. Its content follows from its lines, written or read."""

    def __init__(self, path: Path) -> None:
        """Open the file and read what an earlier agent left. Raises OSError if it cannot be written."""
        self._path = path
        self._waiting: dict[AttemptId, Run] = {}
        self._begun: dict[AttemptId, None] = {}
        self._results: dict[AttemptId, bytes] = {}  # as they are written
        self._sizes: dict[AttemptId, int] = {}  # bytes of the file for each attempt that is not over
        self.life = ""  # of the master's database; empty: not known
        self._is_of_earlier_life = False  # the file: it did not take the line that names this one
        self.live_bytes = 0
        self._cleaned_bytes = 0  # its size when it was last cleaned: of one long frame, one long run may count
        self.left_at = path.stat().st_mtime if path.exists() else 0.0  # when an earlier agent wrote its last line
        self._file = path.open("ab", buffering=0)
        self._size_bytes = self._read(path.read_bytes())
        self._file.truncate(self._size_bytes)  # a line that was never finished would spoil the next

    @property
    def waiting(self) -> list[Run]:
        """Return the runs that have not begun, in order of arrival."""
        return list(self._waiting.values())

    @property
    def begun(self) -> list[AttemptId]:
        """Return the attempts that have begun and have no result."""
        return list(self._begun)

    @property
    def results(self) -> list[Result]:
        """Return the results that the master may lack, the oldest first."""
        return [link_session.read_result(text) for text in self._results.values()]

    def text(self, result: Result) -> bytes:
        """Return a result as it is sent, which is as it is written."""
        return self._results.get(result.attempt) or link_session.write_result(result)

    def has(self, result: Result) -> bool:
        """True if exactly this result is on disk."""
        return self._results.get(result.attempt) == link_session.write_result(result)

    def write(self, entry: Entry) -> None:
        """Append an entry in one piece. Raises OSError if there is no room: nothing is kept but what is over."""
        ended = [(result.attempt, link_session.write_result(result)) for result in entry.results]
        just = {attempt for attempt, _ in ended} if entry.over else ()
        gone = [attempt for attempt in entry.over if attempt in self._sizes or attempt in just]
        lines = [_RESULT % text for _, text in ended]
        if gone:
            lines.append(_OVER % _list(gone))
        self.life = entry.life or self.life
        lines += [_CAME % frame.replace(b"\n", b" ") for frame in map(_written, entry.came) if frame]
        if entry.began:
            lines.append(_BEGAN % _list(entry.began))
        if (lines and not self._size_bytes) or entry.life:
            lines = [*self._life_line(), *lines]
        if not lines:
            return
        try:
            if self._is_of_earlier_life:
                self._clean()
            self._append(b"".join(lines))
        except OSError:
            self._over(gone)  # so it is, written or not: a later agent would send it again, which does no harm
            self._is_of_earlier_life |= bool(entry.life)
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
            if run.attempt not in self._sizes and run.attempt not in assign.cancel and not _has_secrets(run):
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
        """Rewrite the file with only the current lines."""
        unfinished = self._path.with_suffix(".tmp")
        lines = list(self._lines())
        unfinished.write_bytes(b"".join(lines))
        self._file.close()  # Windows replaces no open file
        try:
            unfinished.replace(self._path)
            self._is_of_earlier_life = False
        finally:
            self._reopen()

    def _reopen(self) -> None:
        """Open the file again. Raises OSError if descriptors are exhausted: the next line tries again."""
        self._file = self._path.open("ab", buffering=0)
        self._size_bytes = self._cleaned_bytes = os.fstat(self._file.fileno()).st_size

    def _life_line(self) -> list[bytes]:
        return [_LIFE % json.dumps(self.life).encode()] if self.life else []

    def _lines(self) -> Iterator[bytes]:
        yield from self._life_line()
        yield from (_RESULT % text for text in self._results.values())
        if self._begun:
            yield _BEGAN % _list(self._begun)
        if self._waiting:
            yield _CAME % link_session.encode(Assign(0, 0, tuple(self._waiting.values())))

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
            self.life = line.life or self.life
        return end


def _written(came: tuple[Assign, bytes]) -> bytes:
    """Return the frame as it is written: without runs that have secrets, which the master then sends again."""
    assign, frame = came
    kept = tuple(run for run in assign.run if not _has_secrets(run))
    if len(kept) == len(assign.run):
        return frame if kept else b""
    return link_session.encode(replace(assign, run=kept)) if kept else b""


def _has_secrets(run: Run) -> bool:
    return NAMES_OF_SECRETS in run.environment


def _list(attempts: Iterable[AttemptId]) -> bytes:
    return b'["%s"]' % '","'.join(map(str, attempts)).encode()


class Spool:
    """Spool of an agent. It counts as full beyond ``limit_bytes``, but no result is dropped for that."""

    def __init__(self, folder: Path, limit_bytes: int = SPOOL_LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._named: dict[AttemptId, tuple[list[str], int]] = {}  # files of each, by suffix, with their bytes
        self.size_bytes = 0
        folder.mkdir(parents=True, exist_ok=True)

    def is_full(self, beside_bytes: int) -> bool:
        """True if the spool is full, counting these bytes kept elsewhere."""
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
    with suppress(OSError):  # lost: its sender will notice
        return sum(each.stat().st_size for each in (file.iterdir() if file.is_dir() else (file,)))
    return 0


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file, ignore_errors=True)
    else:
        with suppress(OSError):
            file.unlink(missing_ok=True)
