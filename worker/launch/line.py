"""The agent's line to one guard: orders and words there, news and output back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from worker.launch.groups import Group, Places, name_of
from worker.launch.wire import Unpacker, pack

_PART_BYTES = 2**18


class Listener(Protocol):
    """The tree that a guard has at the time."""

    def heed(self, news: dict[str, Any]) -> bool:
        """Whether that was the last of it."""

    def lose(self) -> None:
        """Its guard was killed."""


class Line:
    """``on_free`` is called when the guard may have its next task, ``on_end`` when it is gone or is to go."""

    def __init__(
        self,
        ours: socket.socket,
        places: Places,
        on_free: Callable[[Line], None],
        on_end: Callable[[Line], None],
    ) -> None:
        ours.setblocking(False)
        self.guard = 0  # its process, once it has said so
        self.session = 0
        self.group = Group({}, "")
        self.hits = 0, 0  # of limits, by all its tasks until now
        self.past_cpu_s = 0.0  # of its tasks until now
        self._places = places
        self._socket = ours
        self._on_free = on_free
        self._on_end = on_end
        self._listener: Listener | None = None
        self._heard = Unpacker()
        self._unsent = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._receive)

    def begin(self, listener: Listener, order: dict[str, Any], files: Sequence[int] = ()) -> None:
        """The guard is free. OSError where it does not take it."""
        self._listener = listener
        self._send(pack(order), files)

    def say(self, word: str) -> None:
        """``kill`` and the like: to the task that is there, or was until now."""
        if self._socket.fileno() >= 0:
            self._send(pack(word))

    def close(self) -> None:
        """The guard kills what it has, and ends."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self.group.close()

    def _send(self, data: bytes, files: Sequence[int] = ()) -> None:
        before, self._unsent = self._unsent, self._unsent + data
        try:
            sent = socket.send_fds(self._socket, [self._unsent], files) if files else self._socket.send(self._unsent)
        except BlockingIOError:
            if files:
                raise
            sent = 0
        except OSError:  # it was killed just now, which the reader notices
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._send, b"")
        elif before:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        try:
            part = self._socket.recv(_PART_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._lose()
            return
        self._heard.feed(part)
        while (news := self._heard.next()) is not None:
            self._heed(news)

    def _heed(self, news: dict[str, Any]) -> None:
        if "guard" in news:
            self.guard, self.session = news["guard"], news["session"]
            self.group = Group(self._places, name_of(self.guard))
            return
        self.hits = news.pop("hits", self.hits)
        self.past_cpu_s += news.get("cpu_s", 0.0)
        is_spent = news.pop("is_spent", False)
        if self._listener and self._listener.heed(news):
            self._listener = None
            (self._on_end if is_spent else self._on_free)(self)

    def _lose(self) -> None:
        self.close()
        listener, self._listener = self._listener, None
        if listener:
            listener.lose()
        self._on_end(self)
