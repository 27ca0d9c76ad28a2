"""Connections without a request occupy few places, for a short time: real sockets and real TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from loopline_master import timings
from loopline_master.certificates.encryption import Encryption
from loopline_master.http.edge import undecided
from loopline_master.http.edge.listener import Places
from loopline_master.http.edge.undecided import Newcomer, Undecided, group_of
from loopline_shared.rest.trust import trusting
from tests.api.bench import Bench, running_master

PATIENCE_S = 60.0
"""A timeout far above the master's response time; not a measurement."""
HELLO = b"\x16"
"""The first byte of a TLS handshake."""


@asynccontextmanager
async def encrypted(folder: Path) -> AsyncIterator[tuple[Bench, ssl.SSLContext]]:
    async with running_master(folder, tls="on") as master:
        yield master, trusting(master.parts[Encryption].ca)


@contextmanager
def silent(master: Bench, count: int, says: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that send only these bytes."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", master.port), timeout=PATIENCE_S))
            one.sendall(says)
            found.append(one)
        yield found


async def is_closed(one: socket.socket) -> bool:
    """Return True once the other end has closed the connection; raise TimeoutError if it does not."""
    try:
        return await asyncio.to_thread(one.recv, 1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undecided, "MOST_UNDECIDED", 20)
    monkeypatch.setattr(undecided, "YIELDS_AFTER_S", 0.1)


@pytest.mark.parametrize("says", [b"", HELLO])
async def test_silent_connections_do_not_block_an_encrypted_master(
    tmp_path: Path, few_places: None, says: bytes
) -> None:
    async with encrypted(tmp_path) as (master, trust):
        with silent(master, 60, says) as connections:
            async with asyncio.timeout(PATIENCE_S):
                assert (await master.ask("GET", "/whoami", ssl=trust)).status == 200
            assert await is_closed(connections[0]), "the oldest connection was closed"


@pytest.mark.parametrize("says", [b"", b"GET /healthz HTTP/1.1\r\nHost: here\r\n"])
async def test_incomplete_heads_do_not_block_a_plain_master(tmp_path: Path, few_places: None, says: bytes) -> None:
    async with running_master(tmp_path) as master:
        with silent(master, 60, says) as connections:
            async with asyncio.timeout(PATIENCE_S):
                assert (await master.ask("GET", "/whoami")).status == 200
            assert await is_closed(connections[0])


async def test_unfinished_handshake_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "HANDSHAKE_WITHIN_S", 0.1)
    async with encrypted(tmp_path) as (master, _):
        with silent(master, 1, b"") as [mute], silent(master, 1, HELLO) as [begun]:
            assert await is_closed(mute)
            assert await is_closed(begun)


async def test_connection_without_a_whole_head_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "FIRST_REQUEST_WITHIN_S", 0.1)
    async with running_master(tmp_path) as master:
        with silent(master, 1, b"GET /healthz HT") as [half], silent(master, 1, b"") as [mute]:
            assert await is_closed(half)
            assert await is_closed(mute)


async def test_connection_with_a_request_is_no_longer_undecided(
    tmp_path: Path, few_places: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over, newcomers = Undecided.hand_over, list[Newcomer]()

    def noted(places: Undecided, newcomer: Newcomer, transport: asyncio.Transport) -> None:
        newcomers.append(newcomer)
        hand_over(places, newcomer, transport)

    monkeypatch.setattr(Undecided, "hand_over", noted)
    async with encrypted(tmp_path) as (master, trust), _link(master, trust) as link:
        (newcomer,) = newcomers
        assert newcomer.expires is None or newcomer.expires.cancelled(), "its first request has come"
        with silent(master, 60, HELLO) as connections:
            assert await is_closed(connections[0])
            assert await is_closed(connections[30])
        assert not link.closed
        assert len(master.parts[Undecided]) <= 20


@asynccontextmanager
async def _link(master: Bench, trust: ssl.SSLContext) -> AsyncIterator[object]:
    headers = master.headers("user")
    async with master.http.ws_connect(master.address("/calls"), headers=headers, ssl=trust) as socket_:
        yield socket_


# --- places --------------------------------------------------------------------------------------------------------


def dropped(newcomer: Newcomer | None) -> list[int]:
    """Return a list that is no longer empty once the connection was closed."""
    assert newcomer is not None
    found = list[int]()
    newcomer.drop = lambda: found.append(1)
    return found


async def test_one_address_has_a_tenth_of_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undecided, "YIELDS_AFTER_S", 1e9)
    places = Undecided()
    admitted = [places.add("10.0.0.1") for _ in range(100)]
    assert sum(one is not None for one in admitted) == undecided.MOST_UNDECIDED // 10
    assert places.add("10.0.0.2") is not None
    assert all(places.add("") is not None for _ in range(200)), "loopback and proxies may use all places"
    monkeypatch.setattr(undecided, "YIELDS_AFTER_S", 0.0)
    was_dropped = dropped(admitted[0])
    assert places.add("10.0.0.1") is not None
    assert was_dropped, "its oldest connection was closed"


async def test_wait_for_a_place_ends_when_one_is_given_up() -> None:
    places = Undecided()
    admitted = [places.add("") for _ in range(undecided.MOST_UNDECIDED)]
    waiting = asyncio.create_task(places.wait_for_place())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert admitted[7] is not None
    places.remove(admitted[7])
    async with asyncio.timeout(PATIENCE_S):
        await waiting


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.2", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
    ],
)
def test_addresses_of_one_ipv6_network_share_a_limit(address: str, group: str) -> None:
    assert group_of(address) == group


class Connection:
    """Stands in for a transport: open or closed."""

    closing = False

    def is_closing(self) -> bool:
        return self.closing


async def test_one_address_has_max_connections_with_those_in_their_handshake() -> None:
    places, theirs = Places(2), [Connection(), Connection()]
    assert not places.has_room("10.0.0.1", undecided=2)
    for connection in theirs:
        assert places.has_room("10.0.0.1")
        places.occupy("10.0.0.1", connection)  # type: ignore[arg-type]
        places.occupy("", connection)  # type: ignore[arg-type]
    assert [places.has_room(address) for address in ("10.0.0.1", "10.0.0.2", "")] == [False, True, True]
    theirs[0].closing = True
    assert places.has_room("10.0.0.1")
