"""Files without a name that an interpreter appends to and the agent reads, kept from call to call.

A function may truncate them: whatever opens /dev/stdout or /dev/stderr to write does, such as a shell's ``>``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loopline_shared.protocol.chunks import END

_PART_BYTES = 2**16
_WORTH_TRUNCATING_BYTES = 2**20
"""Truncating a file costs more than writing a short call's result."""


class AppendFile:
    """File to append to; its length and content are those since it was last cleared."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the file cannot be made."""
        self.file = _open_without_name(folder)
        self._start = 0
        self._read = 0  # up to here

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._size() - self._start

    def parts(self) -> Iterator[bytes]:
        """Yield what has not been read yet, part by part."""
        while part := os.pread(self.file, _PART_BYTES, self._read) or self._again():
            self._read += len(part)
            yield part

    def keep_whole_results(self) -> int:
        """Return the number of results of a chunk in it (protocol/chunks.py); drop one that is incomplete."""
        size_bytes = self._size()
        count, at = 0, self._start
        while len(header := os.pread(self.file, END.size, at)) == END.size:
            following = at + END.size + END.unpack(header)[2]
            if following > size_bytes:
                break
            count, at = count + 1, following
        os.ftruncate(self.file, at)
        return count

    def clear(self, keeps_bytes: int = _WORTH_TRUNCATING_BYTES) -> None:
        """Forget the content, once nobody writes any more and all was read. The file keeps so much of it at most."""
        self._start = self._read
        if self._read > keeps_bytes:
            os.ftruncate(self.file, 0)
            self._start = self._read = 0

    def close(self) -> None:
        """Close the file, which removes it."""
        os.close(self.file)

    def _size(self) -> int:
        """Return the size of the file, of which everything is unread if it has become shorter."""
        size_bytes = os.fstat(self.file).st_size
        if size_bytes < self._read:
            self._start = self._read = 0
        return size_bytes

    def _again(self) -> bytes:
        """Return the first part of a file that has become shorter than what was read of it; else nothing."""
        was_read = self._read
        return os.pread(self.file, _PART_BYTES, 0) if was_read and self._size() < was_read else b""


def file_of(content: bytes, folder: Path) -> int:
    """Return an open file without a name that has this content. Raises OSError."""
    made = AppendFile(folder)
    try:
        with os.fdopen(made.file, "wb", closefd=False) as stream:  # all of it, or OSError: the disk may be full
            stream.write(content)
    except OSError:
        made.close()
        raise
    return made.file


def _open_without_name(folder: Path) -> int:
    """Open a file for appending, so that it can be truncated while others write to it."""
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_APPEND, 0o600)
        except OSError:  # not on every file system
            pass
    with tempfile.NamedTemporaryFile(dir=folder) as named:
        return os.open(named.name, os.O_RDWR | os.O_APPEND)
