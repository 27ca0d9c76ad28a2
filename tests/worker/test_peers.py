"""Files between workers over real sockets: dead and faulty sources are skipped, and a grant is required."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_master.certificates.authority import Authority
from loopline_shared import grants
from loopline_shared.protocol.transfers import FaultKind, FileFetch, PeerFault
from loopline_worker.files.receiving import NetworkError
from loopline_worker.link import new_key
from loopline_worker.link.identity import WorkerIdentity
from loopline_worker.peers import handshake, piece_fetch, piece_stream, serving
from loopline_worker.peers.flow_meter import FlowMeter
from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.handshake import HandshakeError
from loopline_worker.peers.peer_tls import PeerTls
from loopline_worker.peers.upstreams import PeerUpstream, SourceError
from tests.worker.bench import until
from tests.worker.peer_bench import (
    PIECE,
    MasterStub,
    Node,
    be_patient_with_sources,
    content_of,
    list_of,
    name_of,
    nodes,
    start,
)

CONTENT = content_of(12)
NAME = name_of(CONTENT)
CLOSED_PORT = 1
"""No program listens there."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for sources on a busy computer, unless a test is about that."""
    be_patient_with_sources(monkeypatch)
    monkeypatch.setattr(piece_fetch, "_ORDER_HOLDS_S", 60.0)


def growing(node: Node, pieces: int, content: bytes = CONTENT) -> GrowingFile:
    """Return a file that a worker is receiving, with its first pieces."""
    path = node.folder / f"{NAME}.part"
    path.write_bytes(content[: pieces * PIECE])
    file = node.files[NAME] = GrowingFile(path, len(content), pieces)
    return file


def grow(file: GrowingFile, pieces: int, content: bytes = CONTENT) -> None:
    file.path.write_bytes(content[: pieces * PIECE])
    file.grow_to(pieces)


# The path of a file.


async def test_file_is_fetched_from_a_worker_that_has_it(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        fetch = bee.fetch_of(CONTENT, ant.source_for("bee", ant.holds(CONTENT)))
        master = MasterStub(CONTENT)
        await start(fetch, CONTENT, master)
        assert fetch.file.path.read_bytes() == CONTENT
        assert (fetch.received_bytes, master.asked) == (len(CONTENT), [])
        await until(lambda: ant.server.sent_bytes == len(CONTENT))  # counted once the receiver may have received it


async def test_piece_is_forwarded_before_the_file_is_complete(tmp_path: Path) -> None:
    """Cut-through in a pipeline: the last worker has exactly the pieces that the first one has."""
    async with nodes(tmp_path, "ant", "bee", "cat") as (ant, bee, cat):
        first = growing(ant, 3)
        passing = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        last = cat.fetch_of(CONTENT, bee.source_for("cat", NAME))
        running = [start(passing, CONTENT), start(last, CONTENT)]
        await until(lambda: last.file.have == 3)
        assert (passing.file.have, first.have) == (3, 3)
        assert last.file.path.read_bytes() == CONTENT[: 3 * PIECE]
        for pieces in (4, 9, 12):
            grow(first, pieces)
            await until(lambda pieces=pieces: last.file.have == pieces)  # type: ignore[misc]
        await asyncio.gather(*running)
        assert last.file.path.read_bytes() == CONTENT


async def test_fetch_resumes_with_the_valid_pieces_on_disk(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        source = ant.source_for("bee", ant.holds(CONTENT))
        fetch = bee.fetch_of(CONTENT, source)
        spoilt = bytearray(CONTENT[: 7 * PIECE])
        spoilt[5 * PIECE + 1] ^= 1  # a sector damaged by a crash
        fetch.file.path.write_bytes(spoilt)
        await start(fetch, CONTENT)
        assert fetch.file.path.read_bytes() == CONTENT
        await until(lambda: ant.server.sent_bytes == len(CONTENT) - 5 * PIECE)


async def test_next_source_continues_where_a_dead_one_stopped(tmp_path: Path) -> None:
    """The second of a pipeline of four dies: the third continues with the first, and the fourth is not affected."""
    async with nodes(tmp_path, "ant", "bee", "cat", "dog") as (ant, bee, cat, dog):
        first = growing(ant, 4)
        dying = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        passing = cat.fetch_of(CONTENT, bee.source_for("cat", NAME), ant.source_for("cat", NAME))
        last = dog.fetch_of(CONTENT, cat.source_for("dog", NAME), bee.source_for("dog", NAME))
        running = [start(fetch, CONTENT) for fetch in (passing, last)]
        dead = start(dying, CONTENT)
        await until(lambda: last.file.have == 4)
        dying.cut_off()
        bee.server.close()
        with pytest.raises(NetworkError):
            await dead
        grow(first, 12)
        await asyncio.gather(*running)
        assert passing.file.path.read_bytes() == last.file.path.read_bytes() == CONTENT
        assert cat.told == [PeerFault(NAME, "bee", FaultKind.SILENT, lives=None)], "it closed the connection"
        assert dog.faults == []
        assert passing.received_bytes == len(CONTENT)  # no piece was received twice


async def test_workers_that_swap_places_in_a_pipeline_do_not_deadlock(tmp_path: Path) -> None:
    """cat fetched from bee, and now bee must fetch from cat: bee will never send the pieces that cat requested."""
    async with nodes(tmp_path, "ant", "bee", "cat") as (ant, bee, cat):
        first = growing(ant, 3)
        ahead = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        behind = cat.fetch_of(CONTENT, bee.source_for("cat", NAME))
        running = [start(ahead, CONTENT), start(behind, CONTENT)]
        await until(lambda: behind.file.have == 3)
        ahead.sources, behind.sources = (cat.source_for("bee", NAME),), (ant.source_for("cat", NAME),)
        await until(lambda: (ahead.source, behind.source) == ("cat", "ant"))
        grow(first, 12)
        await asyncio.gather(*running)
        assert ahead.file.path.read_bytes() == behind.file.path.read_bytes() == CONTENT
        assert (bee.faults, cat.faults) == ([], [])


async def test_master_is_the_last_source_and_is_left_for_others(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        fetch = bee.fetch_of(CONTENT)
        source = ant.source_for("bee", ant.holds(CONTENT))

        class Master(MasterStub):
            def receive(self, buffer: memoryview) -> bool:
                if self._next == 3:
                    fetch.sources = (source,)
                return super().receive(buffer)

        master = Master(CONTENT)
        await start(fetch, CONTENT, master)
        assert fetch.file.path.read_bytes() == CONTENT
        assert master.asked == [0, 1, 2, 3, 4]  # including pieces in flight
        await until(lambda: ant.server.sent_bytes == len(CONTENT) - 5 * PIECE)


async def test_new_grant_for_the_same_source_interrupts_no_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, connected = PeerUpstream.connect, []
    monkeypatch.setattr(PeerUpstream, "connect", lambda *words: connected.append(words) or connect(*words))
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        first = growing(ant, 2)
        fetch = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        running = start(fetch, CONTENT)
        await until(lambda: fetch.file.have == 2)
        fetch.obey(FileFetch(NAME, (ant.source_for("bee", NAME, 999.0),), 1e9))
        grow(first, 12)
        await running
        assert len(connected) == 1
        await until(lambda: ant.server.sent_bytes == len(CONTENT))


async def test_fetch_waits_and_continues_on_order(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        served = growing(ant, 3)
        fetch, source = bee.fetch_of(CONTENT), ant.source_for("bee", NAME)
        waiting = threading.Event()
        fetch._check_wanted = waiting.set  # type: ignore[method-assign]
        fetch.obey(FileFetch(NAME, (source,), waits=True))
        running = start(fetch, CONTENT)
        await asyncio.to_thread(waiting.wait, 60)
        assert (fetch.source, fetch.file.have) == (None, 0)
        fetch.obey(FileFetch(NAME, (source,)))
        await until(lambda: fetch.file.have == 3)
        fetch.obey(FileFetch(NAME, (source,), waits=True))
        grow(served, 12)
        await until(lambda: fetch.source is None)
        assert fetch.file.have < 12, "only pieces already requested have arrived"
        fetch.obey(FileFetch(NAME, (source,)))
        await running
        assert fetch.file.path.read_bytes() == CONTENT


async def test_fetch_takes_only_first_pieces_while_limited(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee", "cat") as (ant, bee, cat):
        fetch, source = bee.fetch_of(CONTENT), ant.source_for("bee", ant.holds(CONTENT))
        fetch.obey(FileFetch(NAME, (source,), until_bytes=2 * PIECE))
        running = start(fetch, CONTENT)
        await until(lambda: fetch.file.have == 2)
        assert fetch.meter.train_bytes_s > 0.0
        better = cat.source_for("bee", cat.holds(CONTENT))
        fetch.obey(FileFetch(NAME, (better,), until_bytes=2 * PIECE))
        checked = threading.Event()
        fetch._check_wanted = checked.set  # type: ignore[method-assign]
        for _ in range(2):  # once after the new order
            checked.clear()
            await asyncio.to_thread(checked.wait, 60)
        assert (fetch.source, fetch.file.have) == ("ant", 2), "its first pieces came from there"
        fetch.obey(FileFetch(NAME, (better,)))
        await running
        assert fetch.file.path.read_bytes() == CONTENT
        await until(lambda: cat.server.sent_bytes == len(CONTENT) - 2 * PIECE)


async def test_order_to_wait_expires_without_the_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_fetch, "_ORDER_HOLDS_S", 0.2)
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        fetch = bee.fetch_of(CONTENT)
        fetch.obey(FileFetch(NAME, (ant.source_for("bee", ant.holds(CONTENT)),), waits=True))
        await start(fetch, CONTENT)
        assert fetch.file.path.read_bytes() == CONTENT


async def test_planned_rate_applies_to_the_master(tmp_path: Path) -> None:
    async with nodes(tmp_path, "bee") as (bee,):
        fetch = bee.fetch_of(CONTENT)
        fetch.obey(FileFetch(NAME, (), 1.0))  # less than one piece per day
        fetch._limits[1].spend(2**21, 0.0)
        running = start(fetch, CONTENT, MasterStub(CONTENT))
        await until(lambda: fetch._upstream is not None)
        assert fetch.file.have <= 4, "the burst of the bucket"
        fetch.obey(FileFetch(NAME, ()))
        await running
        assert fetch.file.path.read_bytes() == CONTENT


# Sources with wrong content, and without content.


async def test_wrong_bytes_are_not_forwarded(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "liar", "bee", "cat") as (ant, liar, bee, cat):
        wrong = bytearray(CONTENT)
        wrong[4 * PIECE + 9] ^= 1
        liar.holds(bytes(wrong), NAME)
        ant.holds(CONTENT)
        deceived = bee.fetch_of(CONTENT, liar.source_for("bee", NAME), ant.source_for("bee", NAME))
        last = cat.fetch_of(CONTENT, bee.source_for("cat", NAME))
        await asyncio.gather(start(deceived, CONTENT), start(last, CONTENT))
        assert deceived.file.path.read_bytes() == last.file.path.read_bytes() == CONTENT
        assert bee.faults == [("liar", FaultKind.WRONG_CONTENT)]
        assert cat.faults == []  # a forwarding worker is not blamed for received content
        await until(lambda: deceived.received_bytes - ant.server.sent_bytes == 4 * PIECE)  # its correct pieces


async def test_source_with_wrong_content_is_not_used_again(tmp_path: Path) -> None:
    async with nodes(tmp_path, "liar", "bee") as (liar, bee):
        liar.holds(os.urandom(len(CONTENT)), NAME)
        fetch = bee.fetch_of(CONTENT, liar.source_for("bee", NAME))
        with pytest.raises(NetworkError, match="the master is away"):
            await start(fetch, CONTENT)
        assert (fetch.file.have, fetch.file.path.read_bytes()) == (0, b"")
        assert bee.faults == [("liar", FaultKind.WRONG_CONTENT)]
        again = bee.fetch_of(CONTENT, liar.source_for("bee", NAME))
        with pytest.raises(NetworkError, match="the master is away"):
            await start(again, CONTENT)
        assert len(bee.faults) == 1


async def test_live_source_without_pieces_is_eventually_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_fetch, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(piece_fetch, "_PIECES_PATIENCE", 0)
    monkeypatch.setattr(piece_fetch, "_LINE_PATIENCE_S", 60.0)
    async with nodes(tmp_path, "ant", "bee", "cat") as (ant, bee, cat):
        growing(ant, 2)
        fetch = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        last = cat.fetch_of(CONTENT, bee.source_for("cat", NAME), ant.source_for("cat", NAME))
        await asyncio.gather(start(fetch, CONTENT, MasterStub(CONTENT)), start(last, CONTENT))
        assert fetch.file.path.read_bytes() == last.file.path.read_bytes() == CONTENT
        assert bee.told == [PeerFault(NAME, "ant", FaultKind.SILENT, lives=True)]
        assert cat.faults == [], "a worker waits until its predecessor in the pipeline has switched sources"


async def test_flow_from_a_starved_source_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starved: list[FlowMeter] = []

    def note(meter: FlowMeter) -> None:
        starved.append(meter)

    monkeypatch.setattr(FlowMeter, "starve", note)
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        first, fetch = growing(ant, 2), bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        running = start(fetch, CONTENT)
        await until(lambda: fetch.meter in starved)
        grow(first, 12)
        await running
        assert bee.faults == []


async def test_silent_source_counts_as_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_stream, "SILENT_AFTER_S", 0.1)
    monkeypatch.setattr(serving, "SIGN_EVERY_S", 60.0)
    async with nodes(tmp_path, "ant", "bee", "cat") as (ant, bee, cat):
        first = growing(ant, 2)
        await start(bee.fetch_of(CONTENT, ant.source_for("bee", NAME)), CONTENT, MasterStub(CONTENT))
        first.abandon()
        monkeypatch.setattr(handshake, "HANDSHAKE_WITHIN_S", 0.1)
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            source = replace(ant.source_for("cat", NAME), port=frozen.getsockname()[1])
            await start(cat.fetch_of(CONTENT, source), CONTENT, MasterStub(CONTENT))
        for each in (bee, cat):
            assert each.told == [PeerFault(NAME, "ant", FaultKind.SILENT, lives=False)]


async def test_source_limited_by_its_owner_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_fetch, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(piece_fetch, "_PIECES_PATIENCE", 0)
    content = content_of(6)
    async with nodes(tmp_path, "ant", "bee", rate_bytes_s=2.0 * PIECE) as (ant, bee):
        await start(bee.fetch_of(content, ant.source_for("bee", ant.holds(content))), content)
        assert bee.faults == []


async def test_slow_source_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_fetch, "_SLOW_AFTER_S", 0.0)
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        fetch = bee.fetch_of(CONTENT)
        fetch.obey(FileFetch(NAME, (ant.source_for("bee", ant.holds(CONTENT)),), 1e14))  # far more than it sends ...
        fetch.meter.fastest = 1e14  # ... and other sources sent that much
        master = MasterStub(CONTENT)
        await start(fetch, CONTENT, master)
        assert bee.faults == [("ant", FaultKind.SLOW)]
        assert master.asked == list(range(1, 12))
        again = bee.fetch_of(CONTENT)
        bee.blamed.clear()
        again.obey(FileFetch(NAME, (ant.source_for("bee", NAME),), 1e14))
        await start(again, CONTENT)
        assert len(bee.faults) == 1, "a rate that was only planned is no measure"


async def test_source_that_is_unreachable_or_lacks_the_file_is_skipped(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee", "cat") as (ant, bee, cat):
        gone = cat.source_for("bee", NAME)
        gone = replace(gone, port=CLOSED_PORT)
        fetch = bee.fetch_of(CONTENT, gone, ant.source_for("bee", NAME))
        await start(fetch, CONTENT, MasterStub(CONTENT))
        assert ("cat", FaultKind.UNREACHABLE) in bee.faults
        assert bee.faults[1][0] == "ant"
        assert fetch.file.path.read_bytes() == CONTENT


async def test_paused_worker_serves_no_file(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        first = growing(ant, 2)
        fetch = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        running = start(fetch, CONTENT, MasterStub(CONTENT))
        await until(lambda: fetch.file.have == 2)
        ant.is_paused = True
        grow(first, 12)
        await running
        await until(lambda: ant.server.sent_bytes == 2 * PIECE)
        await until(lambda: not ant.server.count)


# Grants.


@pytest.mark.parametrize("fault", ["expired", "other file", "other receiver", "other server", "other secret"])
async def test_wrong_grant_is_refused(tmp_path: Path, fault: str) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        ant.holds(CONTENT)
        other = ant.holds(CONTENT[:-1])
        source = ant.source_for("bee", NAME, -1.0 if fault == "expired" else 300.0)
        sha256, receiver = NAME, "bee"
        match fault:
            case "other file":
                sha256 = other
            case "other receiver":
                receiver = "eve"
            case "other server":
                source = replace(bee.source_for("bee", NAME), port=ant.server.port)
            case "other secret":
                source = replace(source, secret="0" * 64)
        with pytest.raises(SourceError) as error:
            await asyncio.to_thread(PeerUpstream.connect, source, sha256, receiver, 0)
        assert error.value.kind is FaultKind.REFUSED
        assert ant.server.sent_bytes == ant.server.count == 0


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"x" * 5000, b'{"role": "receive"}\n'])
async def test_client_without_a_grant_gets_no_byte(
    tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_WITHIN_S", 0.2 if not said else 5.0)
    async with nodes(tmp_path, "ant") as (ant,):
        ant.holds(CONTENT)
        reader, writer = await asyncio.open_connection("127.0.0.1", ant.server.port)
        writer.write(said)
        with suppress(ConnectionResetError):  # closed with unread bytes
            assert await reader.read() == b""
        writer.close()


async def test_recorded_handshake_cannot_be_replayed(tmp_path: Path) -> None:
    """A receiver's lines are replayed by another one: the listener's second nonce differs from the first."""
    async with nodes(tmp_path, "ant") as (ant,):
        ant.holds(CONTENT)
        source = ant.source_for("bee", NAME)
        grant = replace(ant.grant_to("bee", NAME), expires_at=source.expires_at)
        near, far = socket.socketpair()
        received: list[bytes] = []
        secret = bytes.fromhex(source.secret)
        calling = asyncio.create_task(asyncio.to_thread(handshake.call, near, "receive", grant, secret))
        listening = asyncio.to_thread(handshake.listen, _Tapped(far, received), lambda _: secret)  # type: ignore[arg-type]
        await asyncio.gather(calling, listening)
        near.close(), far.close()
        lines = b"".join(received).splitlines(keepends=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", ant.server.port)
        writer.write(lines[0])
        assert b"nonce" in await reader.readline()  # the grant was accepted
        writer.write(lines[1] + struct.pack("!II", 0, 12))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert ant.server.sent_bytes == 0


async def test_listener_that_does_not_know_the_secret_is_rejected() -> None:
    near, far = socket.socketpair()
    grant = Node.__new__(Node)
    grant.name = "ant"
    wanted = grant.grant_to("bee", NAME)
    calling = asyncio.create_task(asyncio.to_thread(handshake.call, near, "receive", wanted, b"right"))
    listening = asyncio.create_task(asyncio.to_thread(handshake.listen, far, lambda _: b"wrong"))
    with pytest.raises(HandshakeError, match="does not know"):
        await calling
    near.close()
    with pytest.raises(HandshakeError):
        await listening
    far.close()


# Encrypted.


class Identities:
    """A grid's CA, and workers' keys with certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ca").mkdir(parents=True)
        self.authority = Authority(folder / "ca")

    def tls(self, name: str, shows: str = "") -> PeerTls:
        """Return a worker's TLS identity; its certificate may name another worker."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        new_key.main(folder / "key.pem", folder / "request.pem")
        self.renew(name, shows)
        return PeerTls(WorkerIdentity(folder))

    def renew(self, name: str, shows: str = "") -> str:
        request = (self.folder / name / "request.pem").read_text()
        made = self.authority.certify(request, f"loopline://worker/{shows or name}")
        WorkerIdentity(self.folder / name).keep(made + self.authority.certificate)
        return made


async def test_encrypted_file_passes_a_pipeline_and_a_dialled_connection(tmp_path: Path) -> None:
    """Each certificate is renewed during the transfers: later connections use the new one."""
    grid = Identities(tmp_path / "grid")
    names = ("ant", "bee", "cat")
    async with nodes(tmp_path, *names, tls=[grid.tls(name) for name in names]) as (ant, bee, cat):
        first = growing(ant, 3)
        passing = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        running = start(passing, CONTENT)
        await until(lambda: passing.file.have == 3)
        renewed = grid.renew("bee")
        source = bee.source_for("cat", NAME, dials_in=True, port=CLOSED_PORT)
        last = cat.fetch_of(CONTENT, source)
        order = bee.dial_to(cat, source, NAME)
        await bee.server.dial(order, grants.secret_of(bee.key, order.grant))
        await until(lambda: last._best() == source)
        (link,) = last._dialled.values()
        assert isinstance(link, ssl.SSLSocket)
        assert link.version() == "TLSv1.3"
        assert link.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(renewed)
        grow(first, 12)
        await asyncio.gather(running, start(last, CONTENT))
        assert passing.file.path.read_bytes() == last.file.path.read_bytes() == CONTENT
        assert (bee.faults, cat.faults) == ([], [])


@pytest.mark.parametrize("who", ["other worker", "other grid", "no certificate", "in the clear"])
async def test_only_the_worker_of_the_grant_can_transfer(tmp_path: Path, who: str) -> None:
    """At both ends; all of them know the secret."""
    grid, other = Identities(tmp_path / "grid"), Identities(tmp_path / "other")
    false: dict[str, PeerTls | None] = {
        "other worker": grid.tls("eve"),
        "other grid": other.tls("bee"),
        "no certificate": PeerTls(WorkerIdentity(tmp_path / "none")),
        "in the clear": None,
    }
    async with nodes(tmp_path, "ant", "bee", tls=[grid.tls("ant"), false[who]]) as (ant, bee):
        ant.holds(CONTENT)
        bee.holds(CONTENT)
        fetch = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        await start(fetch, CONTENT, MasterStub(CONTENT))
        assert bee.faults in ([("ant", FaultKind.REFUSED)], [("ant", FaultKind.SILENT)])
        assert (ant.server.sent_bytes, fetch.received_bytes) == (0, 0)
        back = ant.fetch_of(CONTENT, bee.source_for("ant", NAME))
        await start(back, CONTENT, MasterStub(CONTENT))
        assert ant.faults == [("bee", FaultKind.REFUSED)]
        assert bee.server.sent_bytes == 0


# Dialling out.


async def test_unreachable_source_dials_the_receiver(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        ant.holds(CONTENT)
        source = ant.source_for("bee", NAME, dials_in=True, port=CLOSED_PORT)
        fetch = bee.fetch_of(CONTENT, source)
        master = MasterStub(CONTENT)
        order = ant.dial_to(bee, source, NAME)
        await ant.server.dial(order, grants.secret_of(ant.key, order.grant))
        await until(lambda: fetch._best() == source)
        await start(fetch, CONTENT, master)
        assert fetch.file.path.read_bytes() == CONTENT
        assert (master.asked, fetch.received_bytes) == ([], len(CONTENT))


async def test_unexpected_dialler_is_refused(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee", "eve") as (ant, bee, eve):
        ant.holds(CONTENT)
        eve.holds(CONTENT)
        source = ant.source_for("bee", NAME, dials_in=True)
        fetch = bee.fetch_of(CONTENT, source)
        order = eve.dial_to(bee, source, NAME)
        await eve.server.dial(order, grants.secret_of(eve.key, order.grant))
        assert fetch._best() is None
        assert eve.server.count == 0


# The protocol's own limits.


async def test_server_sends_no_piece_without_credit(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant") as (ant,):
        ant.holds(CONTENT)
        source = ant.source_for("bee", NAME)
        upstream = await asyncio.to_thread(PeerUpstream.connect, source, NAME, "bee", 2)
        upstream.ask_up_to(5)
        buffer = memoryview(bytearray(PIECE))
        for number in (2, 3, 4):
            assert await asyncio.to_thread(upstream.receive, buffer)
            assert list_of(CONTENT).is_sound(number, buffer)
        await until(lambda: ant.server.sent_bytes == 3 * PIECE)
        upstream.close()
        await until(lambda: not ant.server.count)


async def test_server_that_sends_unrequested_pieces_is_left(tmp_path: Path) -> None:
    near, far = socket.socketpair()
    pieces = piece_stream.IncomingPieces(near, 0)
    pieces.give_credit(1)
    far.sendall(struct.pack("!BI", 1, 7) + b"x" * 100)
    with pytest.raises(piece_stream.StreamError, match="not asked for"):
        pieces.receive(memoryview(bytearray(100)))
    near.close(), far.close()


async def test_server_that_sends_single_bytes_slowly_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_stream, "SILENT_AFTER_S", 0.0)
    near, far = socket.socketpair()
    pieces = piece_stream.IncomingPieces(near, 0)
    near.settimeout(60.0)
    pieces.give_credit(1)
    far.sendall(struct.pack("!BI", 1, 0) + b"x")
    monkeypatch.setattr(piece_stream, "LEAST_BYTES_S", 1e12)
    with pytest.raises(piece_stream.StreamError, match="it sent 1 bytes in"):
        pieces.receive(memoryview(bytearray(100)))
    near.close(), far.close()


async def test_callers_beyond_a_servers_limit_use_other_sources(tmp_path: Path) -> None:
    async with nodes(tmp_path, "ant", "bee") as (ant, bee):
        growing(ant, 1)
        links = []
        for n in range(8):
            source = ant.source_for(f"w{n}", NAME)
            links.append(await asyncio.to_thread(PeerUpstream.connect, source, NAME, f"w{n}", 0))
        await until(lambda: ant.server.count == 8)
        fetch = bee.fetch_of(CONTENT, ant.source_for("bee", NAME))
        await start(fetch, CONTENT, MasterStub(CONTENT))
        assert {kind for _, kind in bee.faults} <= {FaultKind.REFUSED, FaultKind.SILENT}
        assert bee.faults
        for link in links:
            link.close()


class _Tapped:
    """A socket that records all received data."""

    def __init__(self, link: socket.socket, received: list[bytes]) -> None:
        self._link = link
        self._heard = received

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def recv(self, count: int) -> bytes:
        data = self._link.recv(count)
        self._heard.append(data)
        return data
