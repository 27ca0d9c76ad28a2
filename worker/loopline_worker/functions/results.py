"""Results of calls: those of interpreters that crashed, and the file in a call's folder that holds a long result."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from loopline_shared.model import INLINE_LIMIT_BYTES, Output
from loopline_shared.paths import TEMPORARY
from loopline_shared.protocol.chunks import CRASHED, END
from loopline_worker.files import confined_paths
from loopline_worker.functions.append_files import AppendFile
from loopline_worker.functions.interpreter import Interpreter, printable

NAME = "value"
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CHUNK_BYTES = 2**20
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class CrashedResults:
    """Results of a task's calls up to the last crash of an interpreter, in their order."""

    def __init__(self) -> None:
        self.parts: list[AppendFile | bytes] = []
        self.calls = 0
        self.crashes = 0
        self._first_reason = ""

    @property
    def remark(self) -> str:
        """A sentence about all crashes; empty if there was none."""
        return f"{self.crashes} of its calls crashed; the first: {self._first_reason}" if self.crashes else ""

    def add_crash(self, interpreter: Interpreter, reason: str) -> None:
        """Take over the results of an interpreter that crashed in the call behind them."""
        results = interpreter.take_results()
        self.parts.append(results)
        self.calls += results.keep_whole_results() + 1
        text = printable(reason).encode()
        self.parts.append(END.pack(CRASHED, 0.0, len(text)) + text)
        self.crashes += 1
        self._first_reason = self._first_reason or reason

    def close(self) -> None:
        """Close the files that were taken over."""
        for part in self.parts:
            if isinstance(part, AppendFile):
                part.close()


def pieces(part: AppendFile | bytes) -> Iterable[bytes]:
    """Return the content of a part, piece by piece."""
    return [part] if isinstance(part, bytes) else part.parts()


def write_file(folder: Path, parts: Sequence[AppendFile | bytes]) -> None:
    """Write results to the file that ``take`` reads. Raises OSError if there is no room.

    Calls may have changed the folder as they liked: no link is followed, and if that prevents writing, their results
    are lost by their own fault.
    """
    try:
        with confined_paths.folder(folder, (TEMPORARY,), make=True) as handle:
            name = confined_paths.at(folder, (TEMPORARY, NAME), handle)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
            file = os.open(name, _WRITE, 0o600, dir_fd=handle)
        with os.fdopen(file, "wb") as stream:
            for part in parts:
                stream.writelines(pieces(part))
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise


def read_result(folder: Path, target: Path, limit_bytes: int | None = None) -> Output | None:
    """Return the result that a call wrote in its scratch folder; None if there is none. Raises OSError.

    The call may have changed the folder as it liked: no link is followed. A short result becomes part of the
    output, a long one goes to ``target``, on disk; of one above the limit only the beginning is kept.
    """
    try:
        with confined_paths.folder(folder, (TEMPORARY,)) as handle:
            file = os.open(confined_paths.at(folder, (TEMPORARY, NAME), handle), _READ, dir_fd=handle)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size <= INLINE_LIMIT_BYTES:
            return Output(status.st_size, data=stream.read(status.st_size))
        if limit_bytes is not None and status.st_size > limit_bytes:
            return Output(status.st_size, cut=True, data=stream.read(INLINE_LIMIT_BYTES))
        return _copy(stream, target, status.st_size)


def _copy(stream: BinaryIO, target: Path, size_bytes: int) -> Output:
    digest, left = hashlib.sha256(), size_bytes
    with target.open("wb") as copy:
        while left and (part := stream.read(min(_CHUNK_BYTES, left))):
            digest.update(part)
            copy.write(part)
            left -= len(part)
        copy.flush()
        os.fsync(copy.fileno())
    return Output(size_bytes - left, sha256=digest.hexdigest())
