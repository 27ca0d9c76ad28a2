"""What came of a task's calls, beside what its interpreter has just written down."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from loopline_shared.paths import TEMPORARY
from loopline_shared.protocol.chunks import CRASHED, END
from loopline_worker.files import confined_paths
from loopline_worker.functions.append_files import Written
from loopline_worker.functions.interpreter import Interpreter, printable
from loopline_worker.functions.return_value import NAME

_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Made:
    """What came of calls whose interpreter crashed, one or another: ends, in order."""

    def __init__(self) -> None:
        self.parts: list[Written | bytes] = []
        self.calls = 0
        self.crashes = 0
        self._first = ""

    @property
    def remark(self) -> str:
        """Of all crashes; empty: there was none."""
        return f"{self.crashes} of its calls crashed; the first: {self._first}" if self.crashes else ""

    def crashed(self, interpreter: Interpreter, how: str) -> None:
        """It ended in the middle of the call after those that it has written down."""
        written = interpreter.take_ends()
        self.parts.append(written)
        self.calls += written.keep_whole_ends() + 1
        text = printable(how).encode()
        self.parts.append(END.pack(CRASHED, 0.0, len(text)) + text)
        self.crashes += 1
        self._first = self._first or how

    def close(self) -> None:
        for part in self.parts:
            if isinstance(part, Written):
                part.close()


def pieces(part: Written | bytes) -> Iterable[bytes]:
    return [part] if isinstance(part, bytes) else part.parts()


def write_file(folder: Path, parts: Sequence[Written | bytes]) -> None:
    """Where ``value.take`` looks, in a folder that calls may have changed as they like: no link is followed, and
    what cannot be written there for that reason is lost, by their own doing. OSError: no room.
    """
    try:
        with confined_paths.folder(folder, (TEMPORARY,), make=True) as handle:
            name = confined_paths.at(folder, (TEMPORARY, NAME), handle)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
            file = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600, dir_fd=handle
            )
        with os.fdopen(file, "wb") as stream:
            for part in parts:
                stream.writelines(pieces(part))
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise
