"""Who takes a file from whom: the simple line, the orders in Assigns, and what follows from what workers report."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_master.files.blobs import Blobs
from loopline_master.metrics import Metrics
from loopline_master.peers import exchange as exchange_module
from loopline_master.peers.chain import Stand, sources_for
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.piece_lists import PieceLists
from loopline_master.settings import MasterSettings
from loopline_shared import grants
from loopline_shared.errors import LooplineError
from loopline_shared.model import Load
from loopline_shared.pieces import PieceList
from loopline_shared.protocol import worker_link
from loopline_shared.protocol.transfers import (
    CachedFile,
    FaultKind,
    Fetching,
    FileSource,
    Grant,
    PeerFault,
    PeerOrders,
    PeerReport,
)
from loopline_shared.protocol.worker_link import PROTOCOL_VERSION, Assign, Hello, Report, Welcome
from tests.api.bench import FACTS, Bench, running_master

FILE, SIZE = "a" * 64, 2**30


# The line.


@given(st.lists(st.sampled_from([0.0, 20.0, 100.0, math.inf]), min_size=1, max_size=12))
def test_each_receiver_has_one_way_to_a_copy_and_there_is_no_circle(have_mib: list[float]) -> None:
    has_all = [math.isinf(mib) for mib in have_mib]
    line = [Stand(f"w{n}", (4, n), mib * 2**20) for n, mib in enumerate(have_mib)]
    first: dict[str, str] = {}
    for stand in line:
        if not math.isinf(stand.have_bytes):
            found = sources_for(stand, line, 2**27)
            assert len(found) == len(set(found))
            assert not any(has_all) or math.isinf(found[-1].have_bytes)  # some way that needs nobody else
            if found:
                first[stand.worker] = found[0].worker
    heads = [
        name for name in (stand.worker for stand in line if not math.isinf(stand.have_bytes)) if name not in first
    ]
    assert len(heads) == (0 if any(has_all) else 1)  # one takes it from the master, where nobody has it
    for name in first:
        steps = 0
        while name in first:
            name, steps = first[name], steps + 1
            assert steps <= len(line)
    if len({mib for mib in have_mib if not math.isinf(mib)}) <= 1:  # nobody lags
        served = [list(first.values()).count(stand.worker) for stand in line]
        assert max(served) <= 2
        assert all(count <= 1 for count, has in zip(served, has_all, strict=True) if not has)


def test_neighbours_in_address_serve_each_other_and_laggards_nobody() -> None:
    line = [Stand(name, (4, n), 100.0 * 2**20) for n, name in enumerate("abcde")]
    assert [s.worker for s in sources_for(line[3], line, SIZE)] == ["c", "b", "a"]
    line[2] = replace(line[2], have_bytes=0.0)
    assert [s.worker for s in sources_for(line[3], line, 2**27)] == ["b", "a"]
    assert [s.worker for s in sources_for(line[2], line, 2**27)] == ["b", "a"]
    line[1] = replace(line[1], have_bytes=math.inf)
    assert [s.worker for s in sources_for(line[0], line, 2**27)] == ["b"]
    assert [s.worker for s in sources_for(line[3], line, 2**27)] == ["b"]


def test_one_that_comes_late_takes_nothing_from_the_master_though_it_is_the_first_of_the_line() -> None:
    line = [Stand(name, (4, n), 100.0 * 2**20) for n, name in enumerate("abcd")]
    line[0] = replace(line[0], have_bytes=0.0)
    line[2] = replace(line[2], have_bytes=110.0 * 2**20)
    found = {stand.worker: [source.worker for source in sources_for(stand, line, 2**27)] for stand in line}
    assert found == {"a": ["b", "c"], "b": ["c"], "c": [], "d": ["c"]}


# The exchange.


class Room:
    """An exchange, and what workers tell it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.metrics = Metrics()
        made = MasterSettings(data_dir=folder, **({"peers": True} | settings))
        self.exchange = Exchange(made, b"master", self.metrics)
        self.session = 0
        self.hellos: dict[str, tuple[Hello, int]] = {}

    def join(self, name: str, host: str, port: int | None = 7462, **report: Any) -> None:
        self.session += 1
        hello = Hello(PROTOCOL_VERSION, name, f"boot-{name}", FACTS)
        self.hellos[name] = hello, self.session
        self.tell(name, host, port=port, **report)

    def tell(self, name: str, host: str, port: int | None = 7462, **report: Any) -> None:
        hello, session = self.hellos[name]
        peers = PeerReport(port, **({"cached": ()} | report))
        self.exchange.heard(hello, session, host, Report(1, 1, (), (), Load(1), peers=peers))

    def orders(self, name: str) -> PeerOrders:
        return self.exchange.with_orders(name, Assign(1, 1)).peers or PeerOrders()

    def sources(self, name: str) -> tuple[FileSource, ...]:
        return next((fetch.sources for fetch in self.orders(name).fetch if fetch.sha256 == FILE), ())


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


WANTS = {"fetching": (Fetching(FILE, SIZE, 0),)}
HAS = {"cached": (CachedFile(FILE, SIZE),)}


def test_a_source_is_named_with_a_secret_that_it_computes_itself(room: Room) -> None:
    room.join("ant", "10.0.0.1", port=7000, **HAS)
    room.join("bee", "10.0.0.2", **WANTS)
    (source,) = room.sources("bee")
    assert (source.worker, source.host, source.port, source.dials_in) == ("ant", "10.0.0.1", 7000, False)
    terms = room.exchange.terms(room.hellos["ant"][0])
    assert terms
    grant = Grant(FILE, "ant", "bee", source.expires_at)
    assert bytes.fromhex(source.secret) == grants.secret_of(bytes.fromhex(terms.key), grant)
    assert 0 < source.expires_at - terms.now <= grants.GRANTED_FOR_S + 300
    assert room.orders("ant") == PeerOrders()


def test_the_orders_stand_for_as_long_as_the_worker_fetches(room: Room) -> None:
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", **WANTS)
    assert room.sources("bee") == room.sources("bee") != ()
    room.tell("ant", "10.0.0.1", cached=None)  # as before
    assert room.sources("bee")
    room.tell("ant", "10.0.0.1", cached=())
    assert room.sources("bee") == ()
    room.tell("ant", "10.0.0.1", **HAS)
    room.tell("bee", "10.0.0.2", fetching=())
    assert room.sources("bee") == ()


def test_who_has_left_is_named_to_nobody_and_an_old_link_ends_nothing(room: Room) -> None:
    room.join("ant", "10.0.0.1", **HAS)
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", **WANTS)
    room.exchange.left("ant", 1)
    assert room.sources("bee")
    room.exchange.left("ant", 2)
    assert room.sources("bee") == ()
    room.exchange.left("nobody", 1)


def test_a_worker_that_cannot_be_reached_dials_the_receiver(room: Room) -> None:
    room.join("ant", "10.0.0.1", port=None, **HAS)
    room.join("bee", "10.0.0.2", port=8000, **WANTS)
    (source,) = room.sources("bee")
    assert source.dials_in
    (dial,) = room.orders("ant").dial
    assert (dial.host, dial.port) == ("10.0.0.2", 8000)
    assert dial.grant == Grant(FILE, "ant", "bee", source.expires_at)  # both ends make the same secret
    room.tell("bee", "10.0.0.2", port=8000, fetching=())
    assert room.orders("ant") == PeerOrders()


def test_a_worker_that_was_tried_in_vain_dials_too_and_without_any_way_the_master_is_left(room: Room) -> None:
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", faults=(PeerFault(FILE, "ant", FaultKind.UNREACHABLE),), **WANTS)
    assert [source.dials_in for source in room.sources("bee")] == [True]
    room.tell("bee", "10.0.0.2", port=None, **WANTS)
    assert room.sources("bee") == ()


def test_a_worker_on_the_masters_own_computer_dials_those_elsewhere(room: Room) -> None:
    room.join("ant", "127.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", **WANTS)
    room.join("cat", "127.0.0.1", **WANTS)
    assert [source.dials_in for source in room.sources("bee") if source.worker == "ant"] == [True]
    assert [source.dials_in for source in room.sources("cat") if source.worker == "ant"] == [False]


def test_a_liar_is_named_to_nobody_and_is_still_helped_itself(room: Room) -> None:
    for n, name in enumerate(("liar", "ant")):
        room.join(name, f"10.0.0.{n + 1}", **HAS)
    room.join("bee", "10.0.0.3", faults=(PeerFault(FILE, "liar", FaultKind.WRONG_CONTENT),), **WANTS)
    room.join("cat", "10.0.0.5", **WANTS)
    room.tell("bee", "10.0.0.3", faults=(PeerFault(FILE, "liar", FaultKind.WRONG_CONTENT),), **WANTS)  # told again
    named = {source.worker for name in ("bee", "cat") for source in room.sources(name)}
    assert named == {"ant", "bee"}
    room.join("liar", "10.0.0.4", **WANTS)  # beside the cat, and fetching itself
    assert [source.worker for source in room.sources("liar")] == ["bee", "ant"]
    assert [source.worker for source in room.sources("cat")] == ["bee", "ant"]
    text = metrics_of(room)
    assert 'loopline_peer_faults_total{kind="wrong_content"} 1.0' in text


def metrics_of(room: Room) -> str:
    from prometheus_client import generate_latest

    room.exchange.measure()
    return generate_latest(room.metrics._registry).decode()


def test_a_slow_or_silent_source_is_not_named_to_that_receiver_for_a_while(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", faults=(PeerFault(FILE, "ant", FaultKind.SLOW),), **WANTS)
    room.join("cat", "10.0.0.3", **WANTS)
    assert room.sources("bee") == ()
    assert "ant" in [source.worker for source in room.sources("cat")]
    later = exchange_module.time.time() + 1000
    monkeypatch.setattr(exchange_module.time, "time", lambda: later)
    assert [source.worker for source in room.sources("bee")] == ["ant"]


def test_bytes_and_files_on_their_way_are_metrics(room: Room) -> None:
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", fetching=(Fetching(FILE, SIZE, 5, "ant"),), received_bytes=100)
    room.join("cat", "10.0.0.3", fetching=(Fetching(FILE, SIZE, 5),))
    room.tell("bee", "10.0.0.2", fetching=(Fetching(FILE, SIZE, 50, "ant"),), received_bytes=350)
    text = metrics_of(room)
    assert "loopline_peer_bytes_total 250.0" in text
    assert 'loopline_file_transfers{source="peer"} 1.0' in text
    assert 'loopline_file_transfers{source="master"} 1.0' in text


def test_without_peers_nothing_is_said_and_nothing_kept(tmp_path: Path) -> None:
    room = Room(tmp_path, peers=False)
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", **WANTS)
    assert room.exchange.terms(room.hellos["ant"][0]) is None
    assert room.orders("bee") == PeerOrders()


# Frames.


def test_frames_without_peers_are_as_they_were() -> None:
    for message in (Assign(1, 1), Report(1, 1, (), (), Load(1)), Welcome(1.0, 2.0)):
        assert b"peers" not in worker_link.encode(message)


def test_a_release_that_does_not_know_peers_reads_the_frames_of_one_that_does(room: Room) -> None:
    """Fields that a dataclass does not have are skipped: so they are in every release so far."""
    room.join("ant", "10.0.0.1", **HAS)
    room.join("bee", "10.0.0.2", **WANTS)
    frame = worker_link.encode(room.exchange.with_orders("bee", Assign(1, 1)))
    assert b'"peers":' in frame
    unknown = worker_link.decode_from_master(frame.replace(b'"peers":', b'"what_is_to_come":'))
    assert unknown == Assign(1, 1)
    assert worker_link.decode_from_master(frame) == room.exchange.with_orders("bee", Assign(1, 1))


# Lists of pieces.

CONTENT = bytes(range(256)) * 3000


async def test_a_worker_is_given_the_list_of_a_file(master: Bench) -> None:
    name = hashlib.sha256(CONTENT).hexdigest()
    await master.ask("PUT", f"/files/{name}", data=CONTENT)
    answer = await master.ask("GET", f"/files/{name}/pieces", "worker")
    pieces = PieceList.decode(answer.content)
    layout = pieces.layout
    assert layout.size_bytes == len(CONTENT)
    assert all(pieces.is_sound(n, CONTENT[layout.start(n) : layout.start(n + 1)]) for n in range(layout.count))
    assert (await master.ask("GET", f"/files/{name}/pieces", "reader")).status == 403
    assert (await master.ask("GET", f"/files/{'0' * 64}/pieces", "worker")).status == 404


async def test_a_list_is_made_once_and_never_of_a_spoilt_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path, 2**30, 0)
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


async def test_the_keys_of_workers_outlive_the_master(tmp_path: Path) -> None:
    keys = []
    for _ in range(2):
        async with running_master(tmp_path, peers=True) as master:
            hello = Hello(PROTOCOL_VERSION, "ant", "boot", FACTS)
            terms = master.parts[Exchange].terms(hello)
            assert terms
            keys.append(terms.key)
    assert keys[0] == keys[1]
