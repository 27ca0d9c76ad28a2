"""The agent's end of the socket to an interpreter: lines of JSON, and open files with them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import Any

_LONGEST_LINE_BYTES = 65536
_PART_BYTES = 65536

Reply = dict[str, Any] | None
"""One line; None if no more will come."""


class Channel:
    """Closes itself when the other end closes it, or sends what is not a line of JSON."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._incomplete = b""
        self._next: asyncio.Future[Reply] | None = None
        self._early: Reply = None  # it came before it was asked for
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._receive)

    @property
    def is_open(self) -> bool:
        """False once either end has closed it."""
        return self._socket.fileno() >= 0

    def send(self, message: bytes, files: Sequence[int] = ()) -> None:
        """Send a line at once, for which the other end waits. Raises OSError if it does not take the line."""
        data = message + b"\n"
        sent = socket.send_fds(self._socket, [data], list(files)) if files else self._socket.send(data)
        if sent < len(data):
            raise OSError("the interpreter does not read")

    async def next_reply(self) -> Reply:
        """Wait for the next line. There is one caller at a time."""
        if self._early is not None or not self.is_open:
            reply, self._early = self._early, None
            return reply
        self._next = self._loop.create_future()
        return await self._next

    def close(self) -> None:
        """Close this end; who waits for a line learns that no more will come."""
        if self.is_open:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        self._notify(None)

    def _receive(self) -> None:
        try:
            part = self._socket.recv(_PART_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._incomplete += part
        if not part or len(self._incomplete) > _LONGEST_LINE_BYTES:
            self.close()
        elif self._incomplete.endswith(b"\n"):
            line, self._incomplete = self._incomplete, b""
            self._parse(line)

    def _parse(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode())  # given bytes, it would detect their encoding first
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or self._early is not None:
            self.close()
        elif self._next:
            self._notify(message)
        else:
            self._early = message

    def _notify(self, reply: Reply) -> None:
        following, self._next = self._next, None
        if following and not following.done():  # its caller may be cancelled
            following.set_result(reply)
