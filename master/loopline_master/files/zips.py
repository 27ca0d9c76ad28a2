"""A ZIP archive that is made while it is sent: only its directory, which comes last, is held in memory."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from zipfile import ZIP_STORED, ZipFile, ZipInfo

_PIECE_BYTES = 2**20
_EARLIEST, _LATEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
"""The earliest and latest times that the format can express."""


class Archive:
    """An archive of uncompressed files: the master's processor has other work. Large files are ZIP64."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._zip = ZipFile(self._sink, "w", ZIP_STORED, allowZip64=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._zip.close()

    @asynccontextmanager
    async def add(
        self, name: str, file: Path, at: float, *, executable: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the pieces of one more file; it is read and checked in threads."""
        pieces, turn = self._pieces(name, file, at, 0o755 if executable else 0o644), threading.Lock()
        try:
            yield _in_threads(pieces, turn)
        finally:
            with turn:  # a thread may still be reading, although its request is over
                pieces.close()

    def add_text(self, name: str, text: str) -> bytes:
        """Add a short file of this text. Returns its piece."""
        self._zip.writestr(name, text)
        return self._sink.pop()

    def end(self) -> bytes:
        """Return the last piece: the directory."""
        self._zip.close()
        return self._sink.pop()

    def _pieces(self, name: str, file: Path, at: float, mode: int) -> Generator[bytes, None, None]:
        info = ZipInfo(name, max(_EARLIEST, min(time.gmtime(at)[:6], _LATEST)))
        info.external_attr = mode << 16
        info.file_size = file.stat().st_size
        with file.open("rb") as source, self._zip.open(info, "w") as target:
            while piece := source.read(_PIECE_BYTES):
                target.write(piece)
                yield self._sink.pop()
        yield self._sink.pop()


async def _in_threads(pieces: Iterator[bytes], turn: threading.Lock) -> AsyncIterator[bytes]:
    def following() -> bytes | None:
        with turn:
            return next(pieces, None)

    while (piece := await asyncio.to_thread(following)) is not None:
        yield piece


class _Sink(io.RawIOBase):
    """Collects the bytes that were written and not yet taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        """True: ZipFile writes to it."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Collect these bytes."""
        self._pieces.append(bytes(data))
        return len(data)

    def pop(self) -> bytes:
        """Return the bytes collected since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
