"""The agent's end of the socket to a warm interpreter: lines of JSON, and open files with them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

_LONGEST_LINE_BYTES = 65536
_PART_BYTES = 65536

Line = dict[str, Any] | None
"""None: there will be none any more."""


class Channel:
    """Closes itself when the other end does, or sends what is no line."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._rest = b""
        self._listener: Callable[[Line], None] | None = None
        self._unasked: Line = None  # it came before anybody waited for it
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

    def listen(self, listener: Callable[[Line], None]) -> None:
        """Be told the next line, once. One listener at a time."""
        self._listener = listener
        if self._unasked is not None or not self.is_open:
            line, self._unasked = self._unasked, None
            self._loop.call_soon(self._tell, line)

    async def line(self) -> Line:
        """The next one."""
        heard: asyncio.Future[Line] = self._loop.create_future()
        self.listen(lambda line: None if heard.done() else heard.set_result(line))
        return await heard

    def close(self) -> None:
        if self.is_open:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        self._tell(None)

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
            message = json.loads(line.decode())  # of bytes it would look first how they are written
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or self._unasked is not None:
            self.close()
        elif self._listener:
            self._tell(message)
        else:
            self._unasked = message

    def _tell(self, line: Line) -> None:
        listener, self._listener = self._listener, None
        if listener:
            listener(line)
