"""Rates in virtual time: bytes are counted, no clock is read."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.pieces import PieceLayout
from loopline_shared.protocol.transfers import FileFetch
from loopline_worker.peers import piece_fetch, serving
from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.piece_fetch import PieceFetch
from loopline_worker.peers.piece_stream import IncomingPieces
from loopline_worker.peers.serving import Serving
from loopline_worker.peers.token_bucket import TokenBucket
from tests.worker.peer_bench import PIECE, MasterStub, content_of, list_of, name_of


@given(
    st.floats(1e3, 1e9),
    st.floats(1e3, 1e7),
    st.lists(st.tuples(st.integers(1, PIECE), st.floats(0, 2)), min_size=1, max_size=60),
)
def test_rate_is_enforced_and_fully_used(rate: float, burst: float, wishes: list[tuple[int, float]]) -> None:
    """At most the burst, the rate's share and one piece; a client that waits as requested need not wait again."""
    bucket, now, spent = TokenBucket(rate, burst), 0.0, 0
    for count, idle_s in wishes:
        now += idle_s
        now += bucket.wait_s(now)
        assert bucket.wait_s(now + 1e-3) == 0.0
        bucket.spend(count, now)
        spent += count
        assert spent <= burst + rate * now + count + 2


def test_two_users_of_a_bucket_share_its_rate() -> None:
    bucket, now, spent = TokenBucket(1000.0, 100.0), 0.0, [0, 0]
    while now < 100.0:
        for which in (0, 1):
            now += bucket.wait_s(now)
            bucket.spend(50, now)
            spent[which] += 50
    assert 100_000 <= sum(spent) <= 100_000 + 100 + 100
    assert spent[0] == spent[1]


def test_bucket_without_a_rate_never_delays_and_new_rates_apply() -> None:
    bucket = TokenBucket(None, 100.0)
    bucket.spend(10**9, 0.0)
    assert bucket.wait_s(0.0) == 0.0
    bucket = TokenBucket(10.0, 100.0)
    bucket.spend(300, 0.0)
    assert bucket.wait_s(0.0) == 20.1  # until one token is available
    bucket.change(100.0, 10.0)
    assert bucket.wait_s(10.0) == 1.01


class Clock:
    """Virtual time, which passes only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


RATE = 2**20
BURST = 2.0**19
CONTENT = content_of(40)  # 10 MiB
LEAST_S = (len(CONTENT) - BURST - PIECE) / RATE
MOST_S = len(CONTENT) / RATE + 0.5


@pytest.mark.parametrize("limits", ["owner", "plan"])
def test_fetch_obeys_the_owners_and_the_planned_rate(
    limits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(piece_fetch, "time", clock)
    owner = TokenBucket(RATE if limits == "owner" else None, BURST)
    growing = GrowingFile(tmp_path / "part", len(CONTENT))
    fetch = PieceFetch(name_of(CONTENT), growing, "bee", limit=owner, blamed={}, on_fault=lambda fault: None)
    if limits == "plan":
        fetch.obey(FileFetch(name_of(CONTENT), (), rate_bytes_s=RATE))
    fetch.run(list_of(CONTENT), MasterStub(CONTENT))  # type: ignore[arg-type]
    assert growing.path.read_bytes() == CONTENT
    assert LEAST_S <= clock.now <= MOST_S


def test_server_obeys_its_owners_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(serving, "time", clock)
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    growing = GrowingFile(file, len(CONTENT), PieceLayout(len(CONTENT)).count)
    near, far = socket.socketpair()
    sending = Serving(near, growing, TokenBucket(RATE, BURST), lambda: True)
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *option: None)  # a socket pair has no TCP options
    server = threading.Thread(target=sending.run)
    server.start()
    pieces = IncomingPieces(far, 0)
    pieces.give_credit(growing.layout.count)
    got = bytearray()
    while len(got) < len(CONTENT):
        buffer = memoryview(bytearray(growing.layout.length(len(got) // PIECE)))
        if pieces.receive(buffer):
            got += buffer
    server.join()
    far.close()
    assert got == CONTENT
    assert LEAST_S <= clock.now <= MOST_S
