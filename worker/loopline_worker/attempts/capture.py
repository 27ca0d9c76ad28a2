"""Capture of stdout or stderr: the first bytes are kept, the rest is counted and dropped."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from loopline_shared.model import INLINE_LIMIT_BYTES, Output

_DRAIN_S = 2.0
_PART_BYTES = 65536
_NOTHING = Output()


class Capture(asyncio.Protocol):
    """Stream of an attempt. Short output stays in memory, long output goes to ``file``."""

    def __init__(self, file: Callable[[], Path], limit_bytes: int, on_trouble: Callable[[OSError], None]) -> None:
        self._path = file
        self._limit_bytes = limit_bytes
        self._on_trouble = on_trouble
        self._size_bytes = 0
        self._kept_bytes = 0
        self._head = b""  # the first INLINE_LIMIT_BYTES of what is kept
        self._hash: hashlib._Hash | None = None  # once it is long
        self._file: BinaryIO | None = None
        self.is_piped = False  # by who wants no feeding: the end of that pipe is to be waited for
        self._transport: asyncio.BaseTransport | None = None
        self._is_at_end = False
        self._news: asyncio.Event | None = None  # for who waits for more, or for the end

    @property
    def size_bytes(self) -> int:
        """Return the bytes written so far, dropped ones included."""
        return self._size_bytes

    async def open(self) -> int:
        """Open a pipe and return its end for writing, of which the caller closes its own copy."""
        read, write = os.pipe()
        self.is_piped = True
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":  # asyncio wants another kind of pipe there
            threading.Thread(target=_pump, args=(read, self, loop), daemon=True).start()
        else:
            self._transport, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read, "rb", 0))
        return write

    def data_received(self, data: bytes) -> None:
        """Take in what came through the pipe."""
        self.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the pipe."""
        self._is_at_end = True
        self._tell()

    def feed(self, data: bytes) -> None:
        """Take in a piece of output; a disk error is reported to ``on_trouble``."""
        self._size_bytes += len(data)
        kept = data[: self._limit_bytes - self._kept_bytes]
        try:
            self._keep(kept)
        except OSError as error:
            self._limit_bytes = self._kept_bytes
            self._on_trouble(error)

    async def read(self, offset: int, most_bytes: int) -> bytes:
        """Return kept bytes from this offset on, as soon as there are any; empty at the end."""
        while offset >= self._kept_bytes and not self._is_at_end:
            await self._hear()
        if offset < len(self._head):
            return self._head[offset:][:most_bytes]
        return await asyncio.to_thread(_read, self._path(), offset, most_bytes) if offset < self._kept_bytes else b""

    async def drain(self) -> None:
        """Read on to the end of the pipe, which is near once the whole tree is dead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while not self._is_at_end:
                    await self._hear()
        if self._transport:
            self._transport.close()

    def finish(self, whole: bool) -> Output:
        """Return the output, all of it if ``whole``, otherwise its beginning. Raises OSError if it is not on disk."""
        self._is_at_end = True
        self._on_trouble = _ignore  # whose it was goes at once, not with the next collection
        self._tell()
        if not self._size_bytes:
            return _NOTHING
        if self._file is None:
            return Output(self._size_bytes, self._size_bytes > len(self._head), self._head)
        self._file.close()
        if whole and self._hash:
            return Output(self._size_bytes, self._size_bytes > self._kept_bytes, sha256=self._hash.hexdigest())
        self._path().unlink(missing_ok=True)
        return Output(self._size_bytes, self._size_bytes > len(self._head), self._head)

    def _keep(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        if self._file is None and self._kept_bytes > INLINE_LIMIT_BYTES:
            self._file = self._path().open("wb", 0)
            self._file.write(self._head)
            self._hash = hashlib.sha256(self._head)
        if self._file and self._hash:
            self._file.write(data)
            self._hash.update(data)
        self._head += data[: INLINE_LIMIT_BYTES - len(self._head)]
        self._tell()

    async def _hear(self) -> None:
        self._news = self._news or asyncio.Event()
        self._news.clear()
        await self._news.wait()

    def _tell(self) -> None:
        if self._news:
            self._news.set()


def _ignore(error: OSError) -> None: ...


def _read(file: Path, offset: int, most_bytes: int) -> bytes:
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(offset)
        return stream.read(most_bytes)
    return b""  # sent and forgotten meanwhile


def _pump(read: int, capture: Capture, loop: asyncio.AbstractEventLoop) -> None:
    """Read a pipe in a thread of its own."""
    with os.fdopen(read, "rb", 0) as pipe:
        while data := pipe.read(_PART_BYTES):
            loop.call_soon_threadsafe(capture.data_received, data)
    loop.call_soon_threadsafe(capture.connection_lost, None)
