"""Computers of a campaign's workers that sleep: each has its own logind, of python-dbusmock, and a network card.

A computer that sleeps stops all processes of its worker. It wakes by itself, or by a magic packet for its card.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from loopline_shared.power.magic_packets import magic_packet
from loopline_worker.power.login_manager import SERVICE
from loopline_worker.presence.bus import Bus
from loopline_worker.presence.waiting.in_asyncio import run
from tests.live.grid import wait_for
from tests.worker.presence.witnesses import DBUS, MOCK, bus, mock_service

PORT = 9
PATH, MANAGER = "/org/freedesktop/login1", f"{SERVICE}.Manager"
_DELAY_S = 5.0
"""logind waits this long for a delay lock."""


class Computer:
    """The computer of one worker: ``suspend``, then ``resume``."""

    def __init__(self, name: str, folder: Path, bus_address: str, opened: Bus) -> None:
        digest = hashlib.sha256(f"{folder} {name}".encode()).digest()
        self.name, self.bus_address = name, bus_address
        self._bus, self._turn = opened, asyncio.Lock()  # the bus serves one caller at a time
        self.card = ":".join(f"{octet:02x}" for octet in (0x02, *digest[:5]))
        self.heard = asyncio.Event()
        """Set by a magic packet that comes while it sleeps."""
        self._stopped: list[psutil.Process] = []
        self._suspends = 0  # requested by its worker

    async def announce(self, signal_name: str, is_ahead: bool) -> None:
        """Send a signal of logind: PrepareForSleep or PrepareForShutdown."""
        await self._ask(MOCK, "EmitSignal", "sssav", MANAGER, signal_name, "b", [("b", is_ahead)])

    async def until_released(self) -> None:
        """Wait until the worker lets the computer sleep, as long as logind waits."""

        async def is_released() -> bool:
            held = await self._ask(MANAGER, "ListInhibitors")
            return not any(mode == "delay" for _, _, _, mode, _, _ in held)

        with suppress(AssertionError):
            await wait_for(f"{self.name} to let its computer sleep", is_released, _DELAY_S)

    async def suspend(self, pid: int) -> None:
        """Announce the sleep, then stop the agent with this process id and all processes that it has started."""
        await self.announce("PrepareForSleep", True)
        await self.until_released()
        self.heard.clear()
        with suppress(psutil.NoSuchProcess):
            agent = psutil.Process(pid)
            while found := [one for one in _family(agent) if one not in self._stopped and _is_running(one)]:
                for process in found:
                    with suppress(psutil.NoSuchProcess):
                        process.send_signal(signal.SIGSTOP)
                        self._stopped.append(process)

    async def resume(self) -> None:
        """Continue the processes, and announce the return."""
        for process in self._stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self._stopped.clear()
        await self.announce("PrepareForSleep", False)

    async def is_suspend_requested(self) -> bool:
        """True once for each time that the worker has asked logind to suspend its computer."""
        before, self._suspends = self._suspends, len(await self._ask(MOCK, "GetMethodCalls", "s", "Suspend"))
        return self._suspends > before

    async def _ask(self, interface: str, member: str, signature: str = "", *body: Any) -> Any:
        async with self._turn:
            return await run(self._bus.ask(SERVICE, PATH, interface, member, signature, *body))


def _family(agent: psutil.Process) -> Iterable[psutil.Process]:
    return [agent, *agent.children(recursive=True)]


def _is_running(process: psutil.Process) -> bool:
    """False if a process has ended, or is stopped: the worker may have frozen it."""
    with suppress(psutil.NoSuchProcess):
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


@asynccontextmanager
async def computers(names: Iterable[str], folder: Path) -> AsyncIterator[dict[str, Computer]]:
    """Start the buses of these workers' computers, and note the magic packets for their cards."""
    async with AsyncExitStack() as stack:
        found = {name: await stack.enter_async_context(_computer(name, folder)) for name in names}
        stack.enter_context(_listening(found.values()))
        yield found


@asynccontextmanager
async def _computer(name: str, folder: Path) -> AsyncIterator[Computer]:
    with bus() as address, mock_service(address, "--system", "--template", "logind"):
        with patch.dict(os.environ, {"DBUS_SYSTEM_BUS_ADDRESS": address}):
            opened = await run(Bus.open(of_system=True))
        with opened:
            while not await run(opened.ask(DBUS, "/org/freedesktop/DBus", DBUS, "NameHasOwner", "s", SERVICE)):
                await asyncio.sleep(0.01)  # polls
            yield Computer(name, folder, address, opened)


@contextmanager
def _listening(sleepers: Iterable[Computer]) -> Iterator[None]:
    """Have each magic packet set ``heard`` of its computer. Skips where the port cannot be opened."""
    by_packet = {magic_packet(one.card): one for one in sleepers}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as cards:
        cards.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            cards.bind(("", PORT))
        except OSError as error:
            pytest.skip(f"cannot listen on port {PORT}: {error.strerror}")
        cards.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(cards, _receive, cards, by_packet.get)
        try:
            yield
        finally:
            loop.remove_reader(cards)


def _receive(cards: socket.socket, computer_of: Callable[[bytes], Computer | None]) -> None:
    with suppress(BlockingIOError):
        while True:
            if computer := computer_of(cards.recv(2048)):
                computer.heard.set()
