"""A Wayland desktop (KDE, Sway and others like it): its compositor tells when it gets idle, and of the next input.

The protocol is ext-idle-notify-v1, and the few messages for it are written by hand, as those to X servers are.
A program that inhibits idleness (a film, a call) keeps the compositor from getting idle, and so counts as a use.
GNOME has a way of its own (``mutter.py``).
"""

from __future__ import annotations

import math
import os
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.presence.waiting.local_connection import LocalConnection
from loopline_worker.presence.waiting.routine import Routine, pause

_DISPLAY, _REGISTRY, _LISTED, _SEAT, _NOTIFIER, _NOTIFICATION = range(1, 7)
"""Numbers of the objects of a connection, as this client gives them."""
_GET_REGISTRY, _SYNC, _BIND, _GET_IDLE_NOTIFICATION = 1, 0, 0, 1
_ERROR, _GLOBAL, _IDLED, _RESUMED = 0, 0, 0, 1
_SEATS, _NOTIFIERS = b"wl_seat", b"ext_idle_notifier_v1"
_IDLE_AFTER_S = 1.0
_AGAIN_S = 10.0
_ANSWER_WITHIN_S = 2.0


class WaylandError(OSError):
    """A compositor does not report its idleness."""


class Wayland(Probe):
    """Gets idle notifications from the compositor of this user's desktop."""

    name = "wayland"

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        found = dict(os.environ) if environment is None else environment
        uid = os.getuid() if hasattr(os, "getuid") else 0
        self._folder = found.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
        self._display = found.get("WAYLAND_DISPLAY", "")
        self._trouble = "not connected yet"
        self._is_connected = False
        self._idle_since: float | None = None  # None: it is in use now

    def look(self) -> Reading:
        """Return the state that the compositor reported."""
        if not self._is_connected:
            return Reading(self.name, detail=self._trouble)
        idle_s = 0.0 if self._idle_since is None else time.monotonic() - self._idle_since
        return Reading(self.name, idle_s, True, "the compositor's idle notification", is_fresh=False)

    def listen(self, on_input: Callable[[], None]) -> Routine[NoReturn]:
        """Stay connected, and call ``on_input`` at the first input after a pause."""
        while True:
            try:
                yield from self._stay_connected(on_input)
            except (OSError, EOFError, struct.error) as error:
                self._trouble = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._is_connected = False
            yield from pause(_AGAIN_S)

    def _stay_connected(self, on_input: Callable[[], None]) -> Routine[NoReturn]:
        with LocalConnection(self._find()) as compositor:
            globals_ = yield from _list(compositor, time.monotonic() + _ANSWER_WITHIN_S)
            for needed in (_SEATS, _NOTIFIERS):
                if needed not in globals_:
                    raise WaylandError(f"the compositor has no {needed.decode()}")
            compositor.send(
                _bind(globals_[_SEATS], _SEATS, _SEAT) + _bind(globals_[_NOTIFIERS], _NOTIFIERS, _NOTIFIER)
            )
            terms = struct.pack("=III", _NOTIFICATION, int(1000 * _IDLE_AFTER_S), _SEAT)
            compositor.send(_message(_NOTIFIER, _GET_IDLE_NOTIFICATION, terms))
            self._idle_since, self._is_connected = None, True
            while True:
                source, kind, _ = yield from _receive(compositor, math.inf)
                if (source, kind) == (_NOTIFICATION, _IDLED):
                    self._idle_since = time.monotonic() - _IDLE_AFTER_S
                elif (source, kind) == (_NOTIFICATION, _RESUMED):
                    self._idle_since = None
                    on_input()

    def _find(self) -> str:
        """Return the socket of the compositor: that of our environment, or the first one of this user."""
        if self._display:
            return os.path.join(self._folder, self._display)
        with suppress(OSError), os.scandir(self._folder) as entries:
            found = [entry.path for entry in entries if entry.name.startswith("wayland-") and _is_socket(entry)]
            if found:
                return min(found)
        raise WaylandError("there is no Wayland compositor of this user")


def _is_socket(entry: os.DirEntry[str]) -> bool:
    return stat.S_ISSOCK(entry.stat().st_mode)


def _list(compositor: LocalConnection, until: float) -> Routine[dict[bytes, int]]:
    """Return what the compositor offers: the first of each kind, with its number."""
    compositor.send(_message(_DISPLAY, _GET_REGISTRY, struct.pack("=I", _REGISTRY)))
    compositor.send(_message(_DISPLAY, _SYNC, struct.pack("=I", _LISTED)))
    found: dict[bytes, int] = {}
    while True:
        source, kind, body = yield from _receive(compositor, until)
        if source == _LISTED:
            return found
        if (source, kind) == (_REGISTRY, _GLOBAL):
            number, length = struct.unpack_from("=II", body)
            found.setdefault(body[8 : 8 + length].rstrip(b"\0"), number)


def _receive(compositor: LocalConnection, until: float) -> Routine[tuple[int, int, bytes]]:
    """Return the next event: its object, its kind, its content. Raises WaylandError if the compositor refuses."""
    source, head = struct.unpack("=II", (yield from compositor.exactly(8, until)))
    body = yield from compositor.exactly(max(0, (head >> 16) - 8), until)
    if (source, head & 0xFFFF) == (_DISPLAY, _ERROR):
        raise WaylandError(f"the compositor refuses: {body[12:].rstrip(bytes(1)).decode(errors='replace')}")
    return source, head & 0xFFFF, body


def _bind(number: int, interface: bytes, new: int) -> bytes:
    text = interface + bytes(4 - len(interface) % 4)
    content = struct.pack("=II", number, len(interface) + 1) + text + struct.pack("=II", 1, new)
    return _message(_REGISTRY, _BIND, content)


def _message(target: int, request: int, content: bytes) -> bytes:
    return struct.pack("=II", target, (8 + len(content)) << 16 | request) + content
