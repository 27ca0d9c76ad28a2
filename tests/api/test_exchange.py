"""The exchange: orders of the scheduler become addresses and secrets in Assigns, and workers report transfers."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopline_master.files.blobs import Blobs
from loopline_master.files.file_store import FolderStore
from loopline_master.metrics import Metrics
from loopline_master.peers import exchange
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.piece_lists import PieceLists
from loopline_master.peers.ways import with_ways
from loopline_master.settings import MasterSettings
from loopline_shared import grants
from loopline_shared.errors import LooplineError
from loopline_shared.model import Load
from loopline_shared.pieces import PieceList
from loopline_shared.protocol import link_session
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.protocol.transfers import (
    Dial,
    FaultKind,
    Fetching,
    FileFetch,
    FileSource,
    Grant,
    PeerFault,
    PeerOrders,
    PeerReport,
)
from loopline_shared.protocol.worker_link import PROTOCOL_VERSION, Assign, Hello, Report, Welcome
from loopline_shared.rest.bodies import Explanation, FileFlow
from tests.api.bench import FACTS, Bench, running_master

FILE, SIZE = "a" * 64, 2**30


# The exchange.


class Room:
    """An exchange, and the reports of its workers."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.metrics = Metrics()
        made = MasterSettings(data_dir=folder, **({"peers": "on"} | settings))
        self.exchange = Exchange(made, b"master", self.metrics)
        self.session = 0
        self.hellos: dict[str, tuple[Hello, int]] = {}

    def join(self, name: str, host: str, port: int | None = 7462, subnet: str = "", **report: Any) -> None:
        self.session += 1
        hello = Hello(PROTOCOL_VERSION, name, f"boot-{name}", replace(FACTS, link=HostLink(subnet, "")))
        self.hellos[name] = hello, self.session
        self.tell(name, host, port=port, **report)

    def tell(
        self, name: str, host: str, port: int | None = 7462, has_certificate: bool = False, **report: Any
    ) -> None:
        hello, session = self.hellos[name]
        peers = PeerReport(port, **({"cached": ()} | report))
        self.exchange.heard(
            hello, session, host, Report(1, 1, (), (), Load(1), peers=peers), has_certificate=has_certificate
        )

    def orders(self, name: str, ordered: PeerOrders) -> PeerOrders:
        return self.exchange.with_orders(name, Assign(1, 1, peers=ordered)).peers or PeerOrders()

    def sources(self, name: str, *ordered: str) -> tuple[FileSource, ...]:
        (fetch,) = self.orders(name, of(*ordered)).fetch
        return fetch.sources


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


WANTS = {"fetching": (Fetching(FILE, SIZE, 0),)}


def of(*sources: str) -> PeerOrders:
    """Return the scheduler's orders for a receiver."""
    return PeerOrders((FileFetch(FILE, tuple(map(FileSource, sources)), 5.0),))


def serving(source: str, receiver: str) -> PeerOrders:
    return PeerOrders(dial=(Dial(Grant(FILE, source, receiver, 0.0)),))


def way_of(room: Room) -> str:
    """Return the explanation of a file from ant to bee and of another from the master."""
    flows = [
        FileFlow(sha256=FILE, source=source, receiver="bee", rate_bytes_s=0, have_bytes=0, size_bytes=SIZE)
        for source in ("ant", "master")
    ]
    explained = Explanation(subject="1", state="running", sentence="1 of 2 run")
    return with_ways(explained, room.exchange, flows).sentence


def test_receiver_gets_a_secret_that_the_source_can_compute(room: Room) -> None:
    room.join("ant", "10.0.0.1", port=7000)
    room.join("bee", "10.0.0.2", **WANTS)
    (fetch,) = room.orders("bee", of("ant")).fetch
    (source,) = fetch.sources
    assert (fetch.rate_bytes_s, fetch.waits) == (5.0, False)
    assert (source.worker, source.host, source.port, source.dials_in) == ("ant", "10.0.0.1", 7000, False)
    terms = room.exchange.terms(room.hellos["ant"][0])
    assert terms
    grant = Grant(FILE, "ant", "bee", source.expires_at)
    assert bytes.fromhex(source.secret) == grants.secret_of(bytes.fromhex(terms.key), grant)
    assert 0 < source.expires_at - terms.now <= grants.GRANTED_FOR_S + 300
    assert room.orders("ant", serving("ant", "bee")) == PeerOrders(), "a receiver that can connect is not dialled"
    assert way_of(room) == "1 of 2 run; bee connects to port 7000 of ant"


def test_peers_auto_needs_encryption_certificates_and_one_subnet(
    tmp_path: Path,
) -> None:
    room, is_encrypted = Room(tmp_path, peers="auto"), [False]
    room.exchange = Exchange(MasterSettings(data_dir=tmp_path), b"master", room.metrics, lambda: is_encrypted[0])
    hello = Hello(PROTOCOL_VERSION, "ant", "boot", FACTS)
    assert not room.exchange.is_on
    assert room.exchange.terms(hello, has_certificate=True) is None
    is_encrypted[0] = True
    assert room.exchange.terms(hello) is None
    terms = room.exchange.terms(hello, has_certificate=True)
    assert terms
    assert terms.encrypted
    for name, subnet, has_certificate in (
        ("ant", "10.0.0.0/24", True),
        ("bee", "10.0.0.0/24", True),
        ("cat", "10.0.9.0/24", True),
        ("old", "10.0.0.0/24", False),
    ):
        room.join(name, "10.0.0.1", subnet=subnet, has_certificate=has_certificate)
    assert [source.worker for source in room.sources("bee", "cat", "old", "ant")] == ["ant"]
    room.exchange._peers_setting = "on"
    assert [source.worker for source in room.sources("bee", "cat", "old", "ant")] == ["cat", "ant"]


def test_worker_that_left_is_no_source(room: Room) -> None:
    room.join("ant", "10.0.0.1")
    room.join("ant", "10.0.0.1")
    room.join("bee", "10.0.0.2", **WANTS)
    room.exchange.left("ant", 1)
    assert room.sources("bee", "ant")
    room.exchange.left("ant", 2)
    assert [source.worker for source in room.sources("bee", "ant", "cat")] == []
    room.exchange.left("nobody", 1)
    assert room.exchange.with_orders("ant", Assign(1, 1, peers=of("bee"))).peers is None


def test_unreachable_source_dials_the_receiver(room: Room) -> None:
    room.join("ant", "10.0.0.1", port=None)
    room.join("bee", "10.0.0.2", port=8000, **WANTS)
    (source,) = room.sources("bee", "ant")
    assert source.dials_in
    (dial,) = room.orders("ant", serving("ant", "bee")).dial
    assert (dial.host, dial.port) == ("10.0.0.2", 8000)
    assert dial.grant == Grant(FILE, "ant", "bee", source.expires_at)  # both ends compute the same secret
    assert way_of(room) == "1 of 2 run; bee cannot reach ant, which connects to port 8000 of bee instead"


def test_source_reported_unreachable_dials_or_is_dropped(room: Room) -> None:
    room.join("ant", "10.0.0.1")
    room.join("bee", "10.0.0.2", faults=(PeerFault(FILE, "ant", FaultKind.UNREACHABLE),), **WANTS)
    assert [source.dials_in for source in room.sources("bee", "ant")] == [True]
    room.tell("bee", "10.0.0.2", port=None, **WANTS)
    assert room.sources("bee", "ant") == ()
    assert way_of(room).endswith("cannot reach each other: it comes from the next of the line, or the master")


def test_unreachable_source_is_tried_again_although_the_clock_is_set(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.join("ant", "10.0.0.1")
    room.join("bee", "10.0.0.2", faults=(PeerFault(FILE, "ant", FaultKind.UNREACHABLE),), **WANTS)
    day, later = time.time() - 86400.0, time.monotonic() + 3600.0
    monkeypatch.setattr(exchange, "time", SimpleNamespace(time=lambda: day, monotonic=lambda: later))
    assert [source.dials_in for source in room.sources("bee", "ant")] == [False]


def test_source_on_the_masters_computer_dials_remote_receivers(room: Room) -> None:
    room.join("ant", "127.0.0.1")
    room.join("bee", "10.0.0.2", **WANTS)
    room.join("cat", "127.0.0.1", **WANTS)
    assert [source.dials_in for source in room.sources("bee", "ant")] == [True]
    assert [source.dials_in for source in room.sources("cat", "ant")] == [False]


def metrics_of(room: Room) -> str:
    from prometheus_client import generate_latest

    room.exchange.measure()
    return generate_latest(room.metrics._registry).decode()


def test_bytes_faults_and_transfers_are_metrics(room: Room) -> None:
    lied = (PeerFault(FILE, "ant", FaultKind.WRONG_CONTENT),)
    room.join("ant", "10.0.0.1")
    room.join("bee", "10.0.0.2", fetching=(Fetching(FILE, SIZE, 5, "ant"),), received_bytes=100)
    room.join("cat", "10.0.0.3", fetching=(Fetching(FILE, SIZE, 5),), faults=lied)
    room.tell("bee", "10.0.0.2", fetching=(Fetching(FILE, SIZE, 50, "ant"),), received_bytes=350)
    room.tell("cat", "10.0.0.3", fetching=(Fetching(FILE, SIZE, 5),), faults=lied)  # until acknowledged
    text = metrics_of(room)
    assert "loopline_peer_bytes_total 250.0" in text
    assert 'loopline_file_transfers{source="peer"} 1.0' in text
    assert 'loopline_file_transfers{source="master"} 1.0' in text
    left = next(
        line for line in text.splitlines() if line.startswith('loopline_file_transfer_left_bytes{source="peer"}')
    )
    assert float(left.split()[1]) == SIZE - 50
    assert 'loopline_file_transfer_bytes_per_second{source="master"} 0.0' in text
    assert 'loopline_peer_faults_total{kind="wrong_content"} 1.0' in text


def test_exchange_is_silent_and_empty_without_peers(tmp_path: Path) -> None:
    room = Room(tmp_path, peers="off")
    room.join("ant", "10.0.0.1")
    room.join("bee", "10.0.0.2", **WANTS)
    assert room.exchange.terms(room.hellos["ant"][0]) is None
    assert room.exchange.with_orders("bee", Assign(1, 1)) == Assign(1, 1)
    assert room.exchange.flows() == []


# Frames.


def test_frames_without_peers_are_unchanged() -> None:
    for message in (Assign(1, 1), Report(1, 1, (), (), Load(1)), Welcome(1.0, 2.0)):
        assert b"peers" not in link_session.encode(message)


def test_release_without_peers_reads_frames_with_peers(room: Room) -> None:
    """All releases skip fields that their dataclass does not have."""
    room.join("ant", "10.0.0.1")
    room.join("bee", "10.0.0.2", **WANTS)
    sent = room.exchange.with_orders("bee", Assign(1, 1, peers=of("ant")))
    frame = link_session.encode(sent)
    assert b'"peers":' in frame
    unknown = link_session.decode_from_master(frame.replace(b'"peers":', b'"what_is_to_come":'))
    assert unknown == Assign(1, 1)
    assert link_session.decode_from_master(frame) == sent


# Lists of pieces.

CONTENT = bytes(range(256)) * 3000


async def test_worker_can_fetch_the_piece_list_of_a_file(master: Bench) -> None:
    name = hashlib.sha256(CONTENT).hexdigest()
    await master.ask("PUT", f"/files/{name}", data=CONTENT)
    answer = await master.ask("GET", f"/files/{name}/pieces", "worker")
    pieces = PieceList.decode(answer.content)
    layout = pieces.layout
    assert layout.size_bytes == len(CONTENT)
    assert all(pieces.is_sound(n, CONTENT[layout.start(n) : layout.start(n + 1)]) for n in range(layout.count))
    assert (await master.ask("GET", f"/files/{name}/pieces", "reader")).status == 403
    assert (await master.ask("GET", f"/files/{'0' * 64}/pieces", "worker")).status == 404


async def test_piece_list_is_computed_once_and_never_for_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(FolderStore(tmp_path), 2**30, 0)
    name = blobs.write(CONTENT)
    lists = PieceLists(blobs)
    first = await lists.get(name)
    monkeypatch.setattr(PieceList, "of", None)
    assert await lists.get(name) is first
    monkeypatch.undo()
    path = blobs.find(name)
    assert path
    with path.open("r+b") as file:
        file.write(b"x")
    with pytest.raises(LooplineError, match="is spoilt"):
        await PieceLists(blobs).get(name)


async def test_keys_of_workers_survive_a_restart(tmp_path: Path) -> None:
    keys = []
    for _ in range(2):
        async with running_master(tmp_path, peers="on") as master:
            hello = Hello(PROTOCOL_VERSION, "ant", "boot", FACTS)
            terms = master.parts[Exchange].terms(hello)
            assert terms
            keys.append(terms.key)
    assert keys[0] == keys[1]
