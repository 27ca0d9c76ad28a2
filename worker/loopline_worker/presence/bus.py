"""A D-Bus connection that is opened again whenever it is lost, and the base of the two probes that use it."""

from __future__ import annotations

import asyncio
import os
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loopline_worker.presence.probe import Probe, Reading

if TYPE_CHECKING:
    from jeepney import Message
    from jeepney.io.asyncio import DBusRouter

_ASK_WITHIN_S = 2.0
_AGAIN_S = 10.0
_STALE_S = 15.0
"""Age of a reading that no longer counts: longer than the intervals at which ``logind`` and ``mutter`` ask."""
_SYSTEM_BUS = "/run/dbus/system_bus_socket"


class BusError(Exception):
    """The other end of the bus did not do what it was asked for."""


class Bus:
    """Connection to a bus."""

    def __init__(self, router: DBusRouter) -> None:
        self._router = router

    @classmethod
    @asynccontextmanager
    async def open(cls, of_system: bool) -> AsyncIterator[Bus]:
        """Connect. Raises BusError if there is no bus; OSError and others if it does not answer."""
        if not _may_be_there(of_system):
            raise BusError("there is no such bus here")
        from jeepney.io.asyncio import DBusRouter, open_dbus_connection

        async with asyncio.timeout(_ASK_WITHIN_S):
            connection = await open_dbus_connection("SYSTEM" if of_system else "SESSION")
        try:
            async with connection, DBusRouter(connection) as router:
                yield cls(router)
        except Exception:
            if (
                task := asyncio.current_task()
            ) and task.cancelling():  # of a bus that is gone, it raises that instead
                raise asyncio.CancelledError from None
            raise

    async def ask(self, service: str, path: str, interface: str, member: str, signature: str = "", *body: Any) -> Any:
        """Call a method and return the first value of the answer. Raises BusError if that is an error."""
        from jeepney import DBusAddress, MessageType, new_method_call

        question = new_method_call(DBusAddress(path, service, interface), member, signature or None, body)
        async with asyncio.timeout(_ASK_WITHIN_S):
            answer = await self._router.send_and_get_reply(question)
        if answer.header.message_type is MessageType.error:
            raise BusError(f"{service}: {answer.body[0] if answer.body else 'no answer'}")
        return answer.body[0] if answer.body else None

    async def properties(self, service: str, path: str, interface: str) -> dict[str, Any]:
        """Return all properties of an object."""
        found = await self.ask(service, path, "org.freedesktop.DBus.Properties", "GetAll", "s", interface)
        return {name: value for name, (_, value) in found.items()}

    async def subscribe(self, rule: str, on_signal: Callable[[str, tuple[Any, ...]], None]) -> None:
        """Call ``on_signal`` with the name and content of each signal that matches the rule."""
        from jeepney import MatchRule

        self._router.filter(MatchRule(type="signal"), queue=_SignalQueue(on_signal))
        dbus = "org.freedesktop.DBus"
        await self.ask(dbus, "/org/freedesktop/DBus", dbus, "AddMatch", "s", f"type='signal',{rule}")


class _SignalQueue:
    """Passes signals on in place of queueing them."""

    def __init__(self, on_signal: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._on_signal = on_signal

    def put_nowait(self, message: Message) -> None:
        """Pass a signal on."""
        from jeepney import HeaderFields

        self._on_signal(message.header.fields[HeaderFields.member], message.body)


class BusProbe(Probe):
    """A probe whose ``look`` returns the reading that ``keep_up`` last took, for as long as that is fresh."""

    is_of_system: bool
    zero_is_in_use = False  # True: an idle time of 0 lasts until the next reading

    def __init__(self) -> None:
        self._trouble = "not connected yet"
        self._learned: tuple[float, Reading] | None = None

    @abstractmethod
    async def keep_up(self, bus: Bus, on_input: Callable[[], None]) -> None:
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
        return replace(reading, idle_s=idle_s, is_fresh=False)

    def learn(self, reading: Reading) -> None:
        """Remember a reading."""
        self._learned = (time.monotonic(), reading)

    async def listen(self, on_input: Callable[[], None]) -> None:
        """Stay connected, and call ``on_input`` at an input."""
        if not find_spec("jeepney"):  # it is not everywhere
            self._trouble = "jeepney is not installed"
            return
        while True:
            try:
                await self._stay_connected(on_input)
            except (BusError, OSError, TimeoutError, EOFError, ValueError) as error:
                self._trouble = str(error) or type(error).__name__
            except Exception as error:  # a library may raise anything about a broken peer
                self._trouble = f"{type(error).__name__}: {error}"
            self._learned = None
            await asyncio.sleep(_AGAIN_S)

    async def _stay_connected(self, on_input: Callable[[], None]) -> None:
        async with Bus.open(self.is_of_system) as bus:
            await self.keep_up(bus, on_input)


def _may_be_there(is_of_system: bool) -> bool:
    """True if a bus may exist, so that importing the library is worth it."""
    if address := os.environ.get(f"DBUS_{'SYSTEM' if is_of_system else 'SESSION'}_BUS_ADDRESS"):
        path = address.partition("unix:path=")[2].partition(",")[0].partition(";")[0]
        return not path or os.path.exists(path)
    return os.path.exists(_SYSTEM_BUS) if is_of_system else "DISPLAY" in os.environ
