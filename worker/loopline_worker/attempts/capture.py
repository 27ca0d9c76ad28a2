"""Capture of stdout or stderr. Of long output, the beginning and the end are kept, each up to half of the limit.

Bytes are kept in order up to the limit. Further ones overwrite the second half as a ring buffer. At the end that half
is put in order, after a line that says how many bytes are missing.
"""

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
_LAST_BYTES = 1000
_LONGEST_LINE = 300


class Capture(asyncio.Protocol):
    """Output stream of an attempt. Short output stays in memory, long output goes to ``file``."""

    def __init__(self, file: Callable[[], Path], limit_bytes: int, on_trouble: Callable[[OSError], None]) -> None:
        self._path = file
        self._limit_bytes = limit_bytes
        self._half_bytes = limit_bytes - limit_bytes // 2  # of the beginning, never overwritten
        self._on_trouble = on_trouble
        self._size_bytes = 0
        self._kept_bytes = 0  # readable now, contiguous from the beginning
        self._head = b""  # the first INLINE_LIMIT_BYTES of the kept bytes
        self._last = b""  # the last bytes, for ``last_line``
        self._hash: hashlib._Hash | None = None  # of the first half, once there is a file
        self._file: BinaryIO | None = None
        self.is_piped = False  # output comes through a pipe, whose end must be awaited
        self._transport: asyncio.BaseTransport | None = None
        self._is_at_end = False
        self._news: asyncio.Event | None = None  # set when there are new bytes or the end is reached

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes written so far, including dropped ones."""
        return self._size_bytes

    @property
    def last_line(self) -> str:
        """Return the printable characters of the last line that has any; empty if there is no such line."""
        lines = reversed(self._last.decode(errors="replace").splitlines())
        shown = ("".join(letter for letter in line if letter.isprintable()).strip() for line in lines)
        return next((line[:_LONGEST_LINE] for line in shown if line), "")

    @property
    def read_end(self) -> int:
        """Return the descriptor of the pipe's end for reading; -1 if there is no pipe."""
        pipe = self._transport and self._transport.get_extra_info("pipe")
        return pipe.fileno() if pipe and not pipe.closed else -1

    def read_now(self) -> None:
        """Read everything that is in the pipe at this moment."""
        with suppress(OSError):  # it is empty, or closed
            while (end := self.read_end) >= 0 and (data := os.read(end, _PART_BYTES)):
                self.feed(data)

    def content(self) -> bytes:
        """Return what is kept, in reading order, without a word about what is missing. Raises OSError.

        It may be called in another thread while nothing is fed.
        """
        if self._file is None:
            return self._head
        content = _read(self._path(), 0, self._limit_bytes)
        missing = self._size_bytes - self._limit_bytes
        if missing <= 0 or len(content) <= self._half_bytes:
            return content
        place = self._half_bytes + missing % (len(content) - self._half_bytes)
        return content[: self._half_bytes] + content[place:] + content[self._half_bytes : place]

    def restore(self, content: bytes, size_bytes: int) -> None:
        """Begin with the ``content`` of an earlier attempt's capture, which had ``size_bytes`` written to it."""
        missing = max(0, size_bytes - len(content))
        middle = min(len(content), self._half_bytes) if missing else len(content)
        self.feed(content[:middle])
        while missing:  # turn the ring to its position; the real content follows
            ring_bytes = self._limit_bytes - self._half_bytes
            if self._size_bytes >= self._limit_bytes and ring_bytes and missing >= ring_bytes:
                turns = missing // ring_bytes * ring_bytes
                self._size_bytes, missing = self._size_bytes + turns, missing - turns
                continue
            part = min(missing, max(ring_bytes, _PART_BYTES))
            self.feed(bytes(part))
            missing -= part
        self.feed(content[middle:])

    async def open(self) -> int:
        """Open a pipe and return its write end. The caller closes that descriptor."""
        read, write = os.pipe()
        self.is_piped = True
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":  # asyncio wants another kind of pipe there
            threading.Thread(target=_pump, args=(read, self, loop), daemon=True).start()
        else:
            self._transport, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read, "rb", 0))
        return write

    def data_received(self, data: bytes) -> None:
        """Keep bytes from the pipe."""
        self.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the pipe."""
        self._is_at_end = True
        self._notify()

    def feed(self, data: bytes) -> None:
        """Keep a piece of output; a disk error is reported to ``on_trouble``."""
        first = data[: max(0, self._limit_bytes - self._size_bytes)]
        self._last = (self._last + data[-_LAST_BYTES:])[-_LAST_BYTES:]
        try:
            self._keep(first)
            self._size_bytes += len(first)
            self._overwrite(data[len(first) :])
        except OSError as error:
            self._limit_bytes = self._half_bytes = 0
            self._on_trouble(error)

    async def read(self, offset: int, most_bytes: int) -> bytes:
        """Return kept bytes from this offset on, as soon as there are any; empty at the end.

        The second half of output beyond the limit can be read only at the end.
        """
        while offset >= self._kept_bytes and not self._is_at_end:
            await self._wait_for_news()
        if offset < len(self._head):
            return self._head[offset:][:most_bytes]
        most_bytes = min(most_bytes, self._kept_bytes - offset)
        return await asyncio.to_thread(_read, self._path(), offset, most_bytes) if most_bytes > 0 else b""

    async def drain(self) -> None:
        """Read to the end of the pipe, at most ``_DRAIN_S``; call it once all processes are gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while not self._is_at_end:
                    await self._wait_for_news()
        if self._transport:
            self._transport.close()

    def finish(self, whole: bool) -> Output:
        """Return the output, all of it if ``whole``, otherwise its beginning. Raises OSError if it is not on disk."""
        self._on_trouble = _ignore  # breaks a reference cycle, so that the attempt is freed now
        try:
            return self._output(whole) if self._size_bytes else _NOTHING
        finally:
            self._is_at_end = True
            if self._news:
                self._notify()

    def _output(self, whole: bool) -> Output:
        if self._file is None:
            return Output(self._size_bytes, self._size_bytes > len(self._head), self._head)
        if whole and self._hash:
            self._hash.update(self._put_in_order(self._file))
        self._file.close()
        is_cut = self._size_bytes > self._limit_bytes
        if whole and self._hash and self._kept_bytes > INLINE_LIMIT_BYTES:
            return Output(self._size_bytes, is_cut, sha256=self._hash.hexdigest())
        if whole:
            self._head = self._path().read_bytes()
        self._path().unlink(missing_ok=True)
        return Output(self._size_bytes, is_cut or self._size_bytes > len(self._head), self._head)

    def _keep(self, data: bytes) -> None:
        """Append bytes that are within the limit."""
        if self._file is None and self._kept_bytes + len(data) > INLINE_LIMIT_BYTES:
            self._open()
        if self._file and self._hash:
            self._file.write(data)
            self._hash.update(data[: max(0, self._half_bytes - self._kept_bytes)])
        self._kept_bytes += len(data)
        self._head += data[: INLINE_LIMIT_BYTES - len(self._head)]
        self._notify()

    def _open(self) -> BinaryIO:
        self._file = self._path().open("w+b", 0)
        self._file.write(self._head)
        self._hash = hashlib.sha256(self._head[: self._half_bytes])
        return self._file

    def _overwrite(self, data: bytes) -> None:
        """Write bytes beyond the limit over the oldest ones of the second half."""
        ring_bytes = self._limit_bytes - self._half_bytes
        if data and ring_bytes:
            file = self._file or self._open()
            self._kept_bytes = self._half_bytes
            self._head = self._head[: self._half_bytes]
            place = (self._size_bytes - self._limit_bytes) % ring_bytes
            kept = data[-ring_bytes:]
            place = (place + len(data) - len(kept)) % ring_bytes
            file.seek(self._half_bytes + place)
            file.write(kept[: ring_bytes - place])
            file.seek(self._half_bytes)
            file.write(kept[ring_bytes - place :])
        self._size_bytes += len(data)

    def _put_in_order(self, file: BinaryIO) -> bytes:
        """Write the second half in reading order, and return it."""
        file.seek(self._half_bytes)
        half = file.read(self._limit_bytes - self._half_bytes)
        missing = self._size_bytes - self._limit_bytes
        if missing > 0 and half:
            place = missing % len(half)
            half = b"\n[... %d bytes are not kept here ...]\n" % missing + half[place:] + half[:place]
            file.seek(self._half_bytes)
            file.write(half)
            self._kept_bytes = self._half_bytes + len(half)
        return half

    async def _wait_for_news(self) -> None:
        self._news = self._news or asyncio.Event()
        self._news.clear()
        await self._news.wait()

    def _notify(self) -> None:
        if self._news:
            self._news.set()


def _ignore(error: OSError) -> None: ...


def _read(file: Path, offset: int, most_bytes: int) -> bytes:
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(offset)
        return stream.read(most_bytes)
    return b""  # the result was sent and its file removed


def _pump(read: int, capture: Capture, loop: asyncio.AbstractEventLoop) -> None:
    """Read a pipe in a thread of its own."""
    with os.fdopen(read, "rb", 0) as pipe:
        while data := pipe.read(_PART_BYTES):
            loop.call_soon_threadsafe(capture.data_received, data)
    loop.call_soon_threadsafe(capture.connection_lost, None)
