"""An X11 desktop: the MIT-SCREEN-SAVER extension knows how long there has been no input, to the millisecond.

The few requests that this takes are spoken by hand. The X libraries would be quicker to call, but they end the
process when the X server goes, as it does whenever a user logs out, and the extension's is often not installed.
Under Wayland only X programs' input can be seen this way: the probe answers, but does not vouch for the desktop.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from worker.presence.probe import Probe, Reading

_PATIENCE_S = 0.25
_AGAIN_S = 5.0
_COOKIE = b"MIT-MAGIC-COOKIE-1"
_EXTENSION = b"MIT-SCREEN-SAVER"
_QUERY_EXTENSION, _QUERY_INFO = 98, 1


class X11Error(OSError):
    """Why an X server does not tell."""


class X11(Probe):
    name = "x11"

    def __init__(self, environment: dict[str, str] | None = None, sockets: Path = Path("/tmp/.X11-unix")) -> None:  # noqa: S108
        self._environment = dict(os.environ) if environment is None else environment
        self._sockets = sockets
        self._server: XServer | None = None
        self._trouble = "not connected yet"
        self._again = float("-inf")  # when it may be tried again

    def look(self) -> Reading:
        try:
            server = self._connected()
            return Reading(self.name, server.idle_s(), not self._is_wayland(), f"display :{server.display}")
        except (OSError, struct.error) as error:
            self.close()
            self._trouble = getattr(error, "strerror", None) or str(error)
            self._again = max(self._again, time.monotonic() + _AGAIN_S)
            return Reading(self.name, detail=self._trouble)

    def close(self) -> None:
        if self._server:
            self._server.close()
        self._server = None

    def _connected(self) -> XServer:
        if self._server is None:
            if time.monotonic() < self._again:
                raise X11Error(self._trouble)
            self._server = XServer(self._display(), _authority(self._environment))
        return self._server

    def _display(self) -> str:
        """Of this computer: one that is reached by the network is another desk."""
        named = self._environment.get("DISPLAY", "")
        if named:
            found = re.fullmatch(r"(?:unix)?:(\d+)(?:\.\d+)?", named)
            if not found:
                raise X11Error(f"DISPLAY {named!r} is not on this computer")
            return found[1]
        there = sorted(file.name[1:] for file in self._sockets.glob("X*") if file.name[1:].isdigit())
        if not there:
            raise X11Error("there is no X server")
        return there[0]

    def _is_wayland(self) -> bool:
        return "WAYLAND_DISPLAY" in self._environment or self._environment.get("XDG_SESSION_TYPE") == "wayland"


class XServer:
    """One connection."""

    def __init__(self, display: str, authority: Path) -> None:
        self.display = display
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_PATIENCE_S)
        try:
            self._connect()
            self._root = self._greet(_cookie(authority, display))
            self._opcode = self._find_extension()
        except BaseException:
            self._socket.close()
            raise

    def idle_s(self) -> float:
        reply = self._ask(struct.pack("=BBHI", self._opcode, _QUERY_INFO, 2, self._root))
        idle_ms: int = struct.unpack_from("=I", reply, 16)[0]
        return idle_ms / 1000

    def close(self) -> None:
        self._socket.close()

    def _connect(self) -> None:
        path = f"/tmp/.X11-unix/X{self.display}"  # noqa: S108
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.connect(f"\0{path}")

    def _greet(self, cookie: bytes) -> int:
        """Introduce ourselves; the root window. X11Error where we are not let in."""
        name = _COOKIE if cookie else b""
        order = b"l" if struct.pack("=H", 1) == b"\1\0" else b"B"
        head = struct.pack("=cxHHHHxx", order, 11, 0, len(name), len(cookie))
        self._socket.sendall(head + _padded(name) + _padded(cookie))
        status, reason_length, length = struct.unpack("=BB4xH", self._receive(8))
        body = self._receive(4 * length)
        if status != 1:
            raise X11Error(f"display :{self.display}: {body[:reason_length].decode(errors='replace').strip()}")
        vendor_length, formats = struct.unpack_from("=16xH3xB", body)
        root: int = struct.unpack_from("=I", body, 32 + len(_padded(bytes(vendor_length))) + 8 * formats)[0]
        return root

    def _find_extension(self) -> int:
        name = _padded(_EXTENSION)
        request = struct.pack("=BxHHxx", _QUERY_EXTENSION, 2 + len(name) // 4, len(_EXTENSION)) + name
        present, opcode = struct.unpack_from("=8xBB", self._ask(request))
        if not present:
            raise X11Error(f"display :{self.display} has no {_EXTENSION.decode()} extension")
        return int(opcode)

    def _ask(self, request: bytes) -> bytes:
        """The reply's first 32 bytes; events that come between are of no interest."""
        self._socket.sendall(request)
        while True:
            reply = self._receive(32)
            if reply[0] == 0:
                raise X11Error(f"display :{self.display} refused: error {reply[1]}")
            if reply[0] == 1:
                self._receive(4 * int(struct.unpack_from("=I", reply, 4)[0]))
                return reply

    def _receive(self, length: int) -> bytes:
        received = b""
        while len(received) < length:
            part = self._socket.recv(length - len(received))
            if not part:
                raise X11Error(f"display :{self.display} has gone")
            received += part
        return received


def _authority(environment: dict[str, str]) -> Path:
    return Path(environment.get("XAUTHORITY") or Path(environment.get("HOME", "/"), ".Xauthority"))


def _cookie(authority: Path, display: str) -> bytes:
    """What lets us in; empty where nothing is kept for this display."""
    with suppress(OSError, struct.error):
        for number, name, cookie in _entries(authority.read_bytes()):
            if name == _COOKIE and number in (display.encode(), b""):
                return cookie
    return b""


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Display number, kind and secret of every entry; the address before them is this computer's or any."""
    place = 0
    while place < len(data):
        place += 2
        fields = []
        for _ in range(4):
            (length,) = struct.unpack_from(">H", data, place)
            fields.append(data[place + 2 : place + 2 + length])
            place += 2 + length
        yield fields[1], fields[2], fields[3]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
