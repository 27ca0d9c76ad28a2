"""Files without a name that an interpreter appends to, and the agent reads: kept from call to call."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loopline_shared.protocol.chunks import END

_PART_BYTES = 2**16
_WORTH_CUTTING_BYTES = 2**20
"""To cut a file costs more than to write a short call's end."""


class Written:
    """What was written since it was last cleared. OSError where it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self.file = _without_name(folder)
        self._begin = 0
        self._read = 0  # up to here

    def __len__(self) -> int:
        """In bytes."""
        return os.fstat(self.file).st_size - self._begin

    def parts(self) -> Iterator[bytes]:
        """What has not been read yet, piece by piece."""
        while part := os.pread(self.file, _PART_BYTES, self._read):
            self._read += len(part)
            yield part

    def whole(self, most_bytes: int) -> bytes | None:
        """All of it, to be cleared then; None where it is more than that."""
        content = os.pread(self.file, most_bytes + 1, self._begin)
        if len(content) > most_bytes:
            return None
        self._read = self._begin + len(content)
        return content

    def keep_whole_ends(self) -> int:
        """How many calls' ends it holds (protocol/chunks.py); one that was cut off in the middle is dropped."""
        count, at, size_bytes = 0, self._begin, os.fstat(self.file).st_size
        while len(header := os.pread(self.file, END.size, at)) == END.size:
            following = at + END.size + END.unpack(header)[2]
            if following > size_bytes:
                break
            count, at = count + 1, following
        os.ftruncate(self.file, at)
        return count

    def clear(self) -> None:
        """Once nobody writes any more, and all was read."""
        self._begin = self._read
        if self._read > _WORTH_CUTTING_BYTES:
            os.ftruncate(self.file, 0)
            self._begin = self._read = 0

    def close(self) -> None:
        os.close(self.file)


def file_of(content: bytes, folder: Path) -> int:
    """An open file without a name."""
    written = Written(folder)
    try:
        with os.fdopen(written.file, "wb", closefd=False) as stream:  # all of it, or OSError: the disk may be full
            stream.write(content)
    except OSError:
        written.close()
        raise
    return written.file


def _without_name(folder: Path) -> int:
    """Whoever writes to it appends, so that it can be cut to nothing meanwhile."""
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_APPEND, 0o600)
        except OSError:  # not on every file system
            pass
    with tempfile.NamedTemporaryFile(dir=folder) as named:
        return os.open(named.name, os.O_RDWR | os.O_APPEND)
