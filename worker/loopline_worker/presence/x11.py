"""An X11 desktop: the MIT-SCREEN-SAVER extension reports the time without input, to the millisecond.

The few requests for that are written by hand. The X libraries would be quicker to call, but they end the process when
the X server ends, as it does whenever a user logs out, and the extension's library is often not installed. Under
Wayland only X programs' input can be seen this way: the probe answers, but does not vouch for the desktop.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

from loopline_worker.presence.probe import Probe, Reading

_PATIENCE_S = 0.25
_AGAIN_S = 5.0
_COOKIE = b"MIT-MAGIC-COOKIE-1"
_EXTENSION = b"MIT-SCREEN-SAVER"
_MARK_OF_XWAYLAND = b"XWAYLAND"
_LOCAL = re.compile(r"(?:unix)?:(\d+)(?:\.\d+)?")
_X_SOCKET = re.compile(r"/\.X11-unix/X(\d+)$", re.MULTILINE)
_WAYLAND = re.compile(r"/wayland-\d+$", re.MULTILINE)
_QUERY_EXTENSION, _QUERY_INFO = 98, 1


_Path = str | os.PathLike[str]


class X11Error(OSError):
    """An X server does not report its idle time."""


class X11(Probe):
    """Asks every X server of this computer, found by its socket: a service does not know all displays.

    It vouches for the desktop only if each server answers, none is Xwayland, and no Wayland compositor listens.
    """

    name = "x11"

    def __init__(
        self,
        environment: dict[str, str] | None = None,
        sockets: _Path = "/tmp/.X11-unix",  # noqa: S108
        listening: _Path = "/proc/net/unix",
    ) -> None:
        self._environment = dict(os.environ) if environment is None else environment
        self._sockets = sockets
        self._listening = listening
        self._servers: dict[str, XServer] = {}
        self._troubles: dict[str, str] = {}  # of displays that do not answer
        self._may_be_wayland = True
        self._surveyed = float("-inf")

    def look(self) -> Reading:
        """Return the least idle display's time."""
        if time.monotonic() - self._surveyed > _AGAIN_S:
            self._survey()
        idle = {display: idle_s for display in list(self._servers) if (idle_s := self._ask(display)) is not None}
        troubles = "; ".join(self._troubles.values())
        if not idle:
            return Reading(self.name, detail=troubles or self._why_none())
        words = ", ".join(f"display :{display}" for display in idle)
        vouches = not self._troubles and not self._may_be_wayland
        return Reading(self.name, min(idle.values()), vouches, f"{words}; {troubles}" if troubles else words)

    def close(self) -> None:
        """Close the connections."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def _survey(self) -> None:
        """Find what hardly changes: the servers, and if there may be a desktop beside theirs."""
        self._surveyed = time.monotonic()
        listening = self._read_listening()
        self._troubles.clear()
        for display in self._displays(listening):
            if display not in self._servers:
                self._connect(display)
        variables = "WAYLAND_DISPLAY" in self._environment or self._environment.get("XDG_SESSION_TYPE") == "wayland"
        compositor = listening is None or _WAYLAND.search(listening)
        under_one = any(server.is_xwayland for server in self._servers.values())
        self._may_be_wayland = bool(variables or compositor or under_one)

    def _read_listening(self) -> str | None:
        """Return the list of listening sockets; None if it is unreadable."""
        try:
            with open(self._listening, errors="replace") as stream:
                return stream.read()
        except OSError:
            return None

    def _displays(self, listening: str | None) -> list[str]:
        """Return the displays of this computer; displays reached over the network belong to other computers."""
        named = _LOCAL.fullmatch(self._environment.get("DISPLAY", ""))
        found: set[str] = set()
        with suppress(OSError):
            found = {name[1:] for name in os.listdir(self._sockets) if name[0] == "X" and name[1:].isdigit()}
        return sorted({*found, *_X_SOCKET.findall(listening or ""), *([named[1]] if named else [])}, key=int)

    def _connect(self, display: str) -> None:
        try:
            self._servers[display] = XServer(display, _authority(self._environment))
        except (ConnectionRefusedError, FileNotFoundError):
            pass  # a socket that was left behind, without a server
        except (OSError, struct.error) as error:
            self._note(display, error)

    def _ask(self, display: str) -> float | None:
        try:
            return self._servers[display].idle_s()
        except (OSError, struct.error) as error:
            self._servers.pop(display).close()
            self._note(display, error)
            return None

    def _note(self, display: str, error: Exception) -> None:
        """Remember a failure until the next survey, which tries again."""
        words = getattr(error, "strerror", None) or str(error)
        self._troubles[display] = words if f":{display}" in words else f"display :{display}: {words}"

    def _why_none(self) -> str:
        named = self._environment.get("DISPLAY", "")
        if named and not _LOCAL.fullmatch(named):
            return f"DISPLAY {named!r} is not on this computer"
        return "there is no X server"


class XServer:
    """Connection to an X server."""

    def __init__(self, display: str, authority: str) -> None:
        self.display = display
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_PATIENCE_S)
        try:
            self._connect()
            self._root = self._greet(_cookie(authority, display))
            self._opcode = self._find_extension(_EXTENSION)
            if not self._opcode:
                raise X11Error(f"display :{display} has no {_EXTENSION.decode()} extension")
            self.is_xwayland = bool(self._find_extension(_MARK_OF_XWAYLAND))
        except BaseException:
            self._socket.close()
            raise

    def idle_s(self) -> float:
        """Return the time since the last input."""
        reply = self._ask(struct.pack("=BBHI", self._opcode, _QUERY_INFO, 2, self._root))
        idle_ms: int = struct.unpack_from("=I", reply, 16)[0]
        return idle_ms / 1000

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _connect(self) -> None:
        path = f"/tmp/.X11-unix/X{self.display}"  # noqa: S108
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.connect(f"\0{path}")

    def _greet(self, cookie: bytes) -> int:
        """Open the session and return the root window. Raises X11Error if access is refused."""
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

    def _find_extension(self, extension: bytes) -> int:
        """Return the number of the extension's requests; 0 if the server has no such extension."""
        name = _padded(extension)
        request = struct.pack("=BxHHxx", _QUERY_EXTENSION, 2 + len(name) // 4, len(extension)) + name
        present, opcode = struct.unpack_from("=8xBB", self._ask(request))
        return int(opcode) if present else 0

    def _ask(self, request: bytes) -> bytes:
        """Return the reply's first 32 bytes, and skip events that come before it."""
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


def _authority(environment: dict[str, str]) -> str:
    return environment.get("XAUTHORITY") or os.path.join(environment.get("HOME", "/"), ".Xauthority")


def _cookie(authority: str, display: str) -> bytes:
    """Return the secret that grants access; empty if none is kept for this display."""
    with suppress(OSError, struct.error):
        with open(authority, "rb") as stream:
            entries = _entries(stream.read())
        for number, name, cookie in entries:
            if name == _COOKIE and number in (display.encode(), b""):
                return cookie
    return b""


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield display number, kind and secret of every entry; the address before them does not matter."""
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
