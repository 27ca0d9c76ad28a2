"""A D-Bus connection that is opened again whenever it is lost, and the base of the two probes that use it.

Messages are written and read by jeepney, which can do that without any loop. What it has for asyncio is not used:
here a bus is spoken with by routines.
"""

from __future__ import annotations

import itertools
import os
import time
from abc import abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, Self

from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.presence.waiting.local_connection import LocalConnection
from loopline_worker.presence.waiting.routine import Routine, pause

if TYPE_CHECKING:
    from jeepney import Message

_ASK_WITHIN_S = 2.0
_AGAIN_S = 10.0
_STALE_S = 15.0
"""Age of a reading that no longer counts: longer than the intervals at which ``logind`` and ``mutter`` ask."""
_SYSTEM_BUS = "/run/dbus/system_bus_socket"
_DBUS = "org.freedesktop.DBus"
_DBUS_PATH = "/org/freedesktop/DBus"


class BusError(Exception):
    """The other end of the bus did not do what it was asked for."""


class Bus:
    """Connection to a bus, for one routine. Signals are passed on whenever that waits for something of the bus."""

    def __init__(self, connection: LocalConnection) -> None:
        from jeepney import Parser

        self._connection = connection
        self._parser = Parser()
        self._serials = itertools.count(1)
        self._on_signal: Callable[[str, tuple[Any, ...]], None] = lambda signal, body: None
        self._has_signal = False

    @classmethod
    def open(cls, of_system: bool, *, takes_files: bool = False) -> Routine[Self]:
        """Connect. ``takes_files``: answers may contain open files, which the caller has to close.

        Raises BusError if there is no bus; OSError and others if it does not answer.
        """
        if not may_be_there(of_system=of_system):
            raise BusError("there is no such bus here")
        from jeepney.bus import get_bus

        until = time.monotonic() + _ASK_WITHIN_S
        bus = cls(LocalConnection(get_bus("SYSTEM" if of_system else "SESSION"), takes_files=takes_files))
        try:
            yield from bus._authenticate(until)
            yield from bus._call((_DBUS, _DBUS_PATH, _DBUS, "Hello"), until)
        except BaseException:
            bus.close()
            raise
        return bus

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(
        self, service: str, path: str, interface: str, member: str, signature: str = "", *body: Any
    ) -> Routine[Any]:
        """Call a method and return the first value of the answer. Raises BusError if that is an error."""
        return self._call((service, path, interface, member), time.monotonic() + _ASK_WITHIN_S, signature, body)

    def properties(self, service: str, path: str, interface: str) -> Routine[dict[str, Any]]:
        """Return all properties of an object."""
        found = yield from self.ask(service, path, "org.freedesktop.DBus.Properties", "GetAll", "s", interface)
        return {name: value for name, (_, value) in found.items()}

    def subscribe(self, rule: str, on_signal: Callable[[str, tuple[Any, ...]], None]) -> Routine[None]:
        """Call ``on_signal`` with the name and content of each signal that matches the rule."""
        yield from self.ask(_DBUS, _DBUS_PATH, _DBUS, "AddMatch", "s", f"type='signal',{rule}")
        self._on_signal, self._has_signal = on_signal, False

    def signalled(self, until: float) -> Routine[bool]:
        """Wait for a signal (True), or until that time (False). One that came since the last call counts."""
        try:
            while not self._has_signal:
                yield from self._receive(until)
        except TimeoutError:
            return False
        self._has_signal = False
        return True

    def _authenticate(self, until: float) -> Routine[None]:
        from jeepney.auth import BEGIN, Authenticator

        conversation = Authenticator(enable_fds=self._connection.takes_files)
        for words in conversation:
            self._connection.send(words)
            conversation.feed((yield from self._connection.part(until)))
        self._connection.send(BEGIN)

    def _call(
        self, method: tuple[str, str, str, str], until: float, signature: str = "", body: tuple[Any, ...] = ()
    ) -> Routine[Any]:
        from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call

        service, path, interface, member = method
        question = new_method_call(DBusAddress(path, service, interface), member, signature or None, body)
        serial = next(self._serials)
        self._connection.send(question.serialise(serial))
        answer = yield from self._receive(until)
        while answer.header.fields.get(HeaderFields.reply_serial) != serial:  # a signal, or an answer that is late
            answer = yield from self._receive(until)
        if answer.header.message_type is MessageType.error:
            raise BusError(f"{service}: {answer.body[0] if answer.body else 'no answer'}")
        return answer.body[0] if answer.body else None

    def _receive(self, until: float) -> Routine[Message]:
        """Return the next message, and pass it on if it is a signal. Raises TimeoutError if none comes in time."""
        from jeepney import HeaderFields, MessageType

        while (message := self._parser.get_next_message()) is None:
            part = yield from self._connection.part(until)
            files, self._connection.files = self._connection.files, []
            self._parser.add_data(part, files)
        if message.header.message_type is MessageType.signal:
            self._has_signal = True
            self._on_signal(message.header.fields[HeaderFields.member], message.body)
        return message


class BusProbe(Probe):
    """A probe whose ``look`` returns the reading that ``keep_up`` last took, for as long as that is fresh."""

    is_of_system: bool
    zero_is_in_use = False  # True: an idle time of 0 lasts until the next reading

    def __init__(self) -> None:
        self._trouble = "not connected yet"
        self._learned: tuple[float, Reading] | None = None

    @abstractmethod
    def keep_up(self, bus: Bus, on_input: Callable[[], None]) -> Routine[NoReturn]:
        """Take readings, again and again, until the connection fails."""

    @property
    def is_up_to_date(self) -> bool:
        """True if the last reading is not too old to count."""
        return self._learned is not None and time.monotonic() - self._learned[0] <= _STALE_S

    def look(self) -> Reading:
        """Return the last reading, aged; without one, the reason."""
        if self._learned is None or not self.is_up_to_date:
            return Reading(self.name, detail=self._trouble)
        at, reading = self._learned
        idle_s = reading.idle_s
        if idle_s is not None and not (idle_s == 0 and self.zero_is_in_use):
            idle_s += time.monotonic() - at
        return reading._replace(idle_s=idle_s, is_fresh=False)

    def learn(self, reading: Reading) -> None:
        """Remember a reading."""
        self._learned = (time.monotonic(), reading)

    def listen(self, on_input: Callable[[], None]) -> Routine[None]:
        """Stay connected, and call ``on_input`` at an input."""
        if not find_spec("jeepney"):  # it is not everywhere
            self._trouble = "jeepney is not installed"
            return
        while True:
            try:
                with (yield from Bus.open(self.is_of_system)) as bus:
                    yield from self.keep_up(bus, on_input)
            except (BusError, OSError, EOFError, ValueError) as error:
                self._trouble = str(error) or type(error).__name__
            except Exception as error:  # a library may raise anything about a broken peer
                self._trouble = f"{type(error).__name__}: {error}"
            self._learned = None
            yield from pause(_AGAIN_S)


def may_be_there(*, of_system: bool) -> bool:
    """True if a bus may exist, so that importing the library is worth it: it finds a session's by the address."""
    if address := os.environ.get(f"DBUS_{'SYSTEM' if of_system else 'SESSION'}_BUS_ADDRESS"):
        path = address.partition("unix:path=")[2].partition(",")[0].partition(";")[0]
        return not path or os.path.exists(path)
    return of_system and os.path.exists(_SYSTEM_BUS)
