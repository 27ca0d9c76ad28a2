"""The opening of a WebSocket (RFC 6455, section 4): the request, and the server's answer."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1

_ACCEPTED_WITH = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_BYTES = 2**16
_END = b"\r\n\r\n"
_SWITCHING = 101


class UpgradeError(Exception):
    """The server's answer is none to such a request."""


class RejectedError(Exception):
    """The server answered with an HTTP status, perhaps with another address, in place of a WebSocket."""

    def __init__(self, status: int, location: str = "") -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.location = location


class Upgrade:
    """A request that awaits its answer."""

    def __init__(self) -> None:
        self._key = b64encode(os.urandom(16))
        self._received = b""

    def request(self, host: str, path: str, headers: Mapping[str, str]) -> bytes:
        """Return the request. Raises UpgradeError for a header that would be several."""
        lines = [f"GET {path or '/'} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {self._key.decode()}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any(not letter.isprintable() for line in lines for letter in line):
            raise UpgradeError("what is to be sent has a line break in it")
        return "\r\n".join(lines).encode() + _END

    def feed(self, piece: bytes) -> bytes | None:
        """Return what follows the answer, once that is there. Raises UpgradeError or RejectedError."""
        self._received += piece
        answer, end, rest = self._received.partition(_END)
        if not end:
            if len(self._received) > _MOST_BYTES:
                raise UpgradeError("its answer does not end")
            return None
        self._check(answer.decode("latin-1").split("\r\n"))
        return rest

    def _check(self, lines: list[str]) -> None:
        version, _, said = lines[0].partition(" ")
        status = said[:3]
        if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
            raise UpgradeError(f"it answered {lines[0][:100]!r}")
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        if int(status) != _SWITCHING:
            raise RejectedError(int(status), fields.get("location", ""))
        accepted = b64encode(sha1(self._key + _ACCEPTED_WITH, usedforsecurity=False).digest()).decode()
        if fields.get("upgrade", "").lower() != "websocket" or fields.get("sec-websocket-accept") != accepted:
            raise UpgradeError("it answered another request")
        if "sec-websocket-extensions" in fields or "sec-websocket-protocol" in fields:
            raise UpgradeError("it uses what was not offered")
