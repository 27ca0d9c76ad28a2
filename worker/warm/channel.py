"""The agent's end of the socket to a warm interpreter: lines of JSON, and open files with them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import Any

_LONGEST_LINE_BYTES = 65536
_PART_BYTES = 65536


class Channel:
    """Closes itself when the other end does, or sends what is no line."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._rest = b""
        self._line: asyncio.Future[dict[str, Any] | None] | None = None
        self._unasked: dict[str, Any] | None = None  # it came before anybody waited for it
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._receive)

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def send(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        """In one piece: the other end is waiting for it. OSError where it does not take it."""
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self._socket, [data], list(files)) if files else self._socket.send(data)
        if sent < len(data):
            raise OSError("a warm interpreter does not read")

    async def line(self) -> dict[str, Any] | None:
        """The next one; None: there will be none any more. One reader at a time."""
        if self._unasked is not None:
            line, self._unasked = self._unasked, None
            return line
        if not self.is_open:
            return None
        self._line = self._loop.create_future()
        return await self._line

    def close(self) -> None:
        if self.is_open:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        if self._line and not self._line.done():
            self._line.set_result(None)

    def _receive(self) -> None:
        try:
            part = self._socket.recv(_PART_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._rest += part
        if not part or len(self._rest) > _LONGEST_LINE_BYTES:
            self.close()
        elif self._rest.endswith(b"\n"):
            line, self._rest = self._rest, b""
            self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or self._unasked is not None:
            self.close()
        elif self._line and not self._line.done():
            self._line.set_result(message)
        else:
            self._unasked = message
