"""Attackers of a master, in a process of their own: hostile workers and users, and clients without a token.

Each has an address of its own on the loopback network, as if it attacked from another computer.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from loopline_shared.model import AttemptId, Facts, Load
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.rest.trust import trusting

CONNECTIONS, HANDSHAKES, BOMBS = 200, 520, 8
STRANGERS = 100_000
REPORTS = 20
PAUSE_S = 0.05
_FACTS = Facts("linux", "x86_64", "3.11.7", "0.2.0", "hostile", cpus=1, memory_bytes=2**33, slots=1)
_NONSENSE = b'{"kind":"report","seq":1,"seen":0,"results":[],"holding":[' + b"1," * 2**22 + b"1]}"
_NO_JOB = b'{"command":[' + b"1," * 2**19 + b"1]}"
_HALF = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nContent-Type: application/json\r\n\r\n{"
_BOMB = gzip.compress(bytes(400_000_000))
"""0.4 MB that are 400 MB."""
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Target:
    """A master, the certificate to trust it by (PEM), and headers of its hostile worker and user."""

    url: str
    ca: str
    worker: dict[str, str]
    user: dict[str, str]


class Attacker:
    """Connects to the target from one address."""

    def __init__(self, target: Target, address: str) -> None:
        self.target, self._place, self._from = target, urlsplit(target.url), (address, 0)
        self._context = trusting(target.ca)

    def session(self, headers: dict[str, str]) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, local_addr=self._from, ssl=self._context)
        return aiohttp.ClientSession(connector=connector, headers=headers)

    async def open(self, context: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self._place.hostname, self._place.port, local_addr=self._from, ssl=context
        )

    async def worker(self) -> None:
        """Say hello, send a long Report and nonsense."""
        strangers = [AttemptId(1, task, 9) for task in range(STRANGERS)]
        async with (
            self.session(self.target.worker) as http,
            http.ws_connect(f"{self.target.url}/api/v1/link", max_msg_size=0) as link,
        ):
            session = WorkerSession("hostile", "b", _FACTS)
            await link.send_bytes(session.hello())
            session.receive((await link.receive()).data)
            for _ in range(REPORTS):
                await link.send_bytes(session.report((), (), Load(slots=1), strangers)[1])
                session.receive((await link.receive()).data)
            await link.send_bytes(_NONSENSE)
            await link.receive()

    async def user(self) -> None:
        """Submit what is no job."""
        await self.post("/jobs", _NO_JOB, self.target.user)

    async def slow_client(self) -> None:
        """Send half a request, and wait to be disconnected."""
        await self._send_and_wait(_HALF, self._context)

    async def half_handshake(self) -> None:
        """Send the first byte of a TLS handshake, and wait to be disconnected."""
        await self._send_and_wait(b"\x16", None)

    async def bomb(self) -> None:
        """Send a body that is a thousand times as long once it is decompressed."""
        await self.post("/jobs", _BOMB, {"Content-Encoding": "gzip"})

    async def guess(self) -> None:
        """Try to join with a wrong secret."""
        wish = b'{"secret":"lj_00000000_wrong","worker":"x","token":"00000000","hash":"%s"}' % (b"0" * 64)
        await self.post("/join", wish, {})

    async def webhook(self) -> None:
        """End jobs whose webhooks never answer, twenty a second."""
        receiver = await asyncio.start_server(lambda *_: asyncio.sleep(3600), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
        async with receiver, self.session(self.target.user) as http:
            while True:
                job = {"command": ["work"], "requires": {"labels": ["nowhere"]}, "notify": {"webhook": url}}
                async with http.post(f"{self.target.url}/api/v1/jobs", json=job) as answer:
                    made = await answer.json()
                if "id" in made:
                    async with http.post(f"{self.target.url}/api/v1/jobs/{made['id']}/cancel") as answer:
                        await answer.read()
                await asyncio.sleep(PAUSE_S)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        async with (
            self.session(_JSON | headers) as http,
            http.post(f"{self.target.url}/api/v1{path}", data=body) as answer,
        ):
            await answer.read()

    async def _send_and_wait(self, text: bytes, context: ssl.SSLContext | None) -> None:
        reader, writer = await self.open(context)
        try:
            writer.write(text)
            await reader.read()
        finally:
            writer.close()


GUESSER = "127.0.0.7"
"""Address of the attacker who guesses join tokens."""


async def _attack(target: Target) -> None:
    kinds: tuple[tuple[str, int, Callable[[Attacker], Callable[[], Awaitable[None]]]], ...] = (
        ("127.0.0.2", 1, lambda one: one.worker),
        ("127.0.0.3", 1, lambda one: one.user),
        ("127.0.0.4", CONNECTIONS, lambda one: one.slow_client),
        ("127.0.0.5", HANDSHAKES, lambda one: one.half_handshake),
        ("127.0.0.6", BOMBS, lambda one: one.bomb),
        (GUESSER, 1, lambda one: one.guess),
        ("127.0.0.8", 1, lambda one: one.webhook),
    )
    async with asyncio.TaskGroup() as group:
        for address, count, choose in kinds:
            attacker = Attacker(target, address)
            for _ in range(count):
                group.create_task(_again(choose(attacker)))


async def _again(act: Callable[[], Awaitable[None]]) -> None:
    """Repeat an attack until cancelled; a failure of the connection is expected."""
    while True:
        with suppress(aiohttp.ClientError, OSError, ValueError):
            await act()
        await asyncio.sleep(PAUSE_S)


def attack(target: Target) -> None:
    """Attack until killed: a process of its own."""
    asyncio.run(_attack(target))
