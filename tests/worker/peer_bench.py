"""Workers with a peer server that fetch in pieces, without agents, over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import io
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import pytest

from loopline_shared import grants
from loopline_shared.checksums import ContentCheck
from loopline_shared.pieces import PieceLayout, PieceList
from loopline_shared.protocol.transfers import Dial, FaultKind, FileSource, Grant, PeerFault
from loopline_worker.files.receiving import NetworkError
from loopline_worker.peers import handshake, piece_fetch, piece_stream, upstreams
from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.handshake import Opening
from loopline_worker.peers.peer_server import PeerServer
from loopline_worker.peers.peer_tls import PeerTls
from loopline_worker.peers.piece_fetch import PieceFetch, Way
from loopline_worker.peers.token_bucket import TokenBucket

PIECE = 2**18


def content_of(pieces: int) -> bytes:
    """Return ``pieces`` different pieces, the last one short."""
    parts = [hashlib.blake2b(bytes([n])).digest() * (PIECE // 64) for n in range(pieces)]
    return b"".join(parts)[:-7]


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def list_of(content: bytes) -> PieceList:
    return PieceList.of(io.BytesIO(content), len(content), ContentCheck(name_of(content)))


@dataclass
class MasterStub:
    """The master as the last source; ``asked`` are the pieces that it sent. Without content it is unreachable."""

    content: bytes = b""
    asked: list[int] = field(default_factory=list)
    window_bytes: int = 2 * PIECE
    is_late: bool = False
    took_s: float = 0.0
    is_limited: bool = False

    def __call__(self, first: int) -> MasterStub:
        if not self.content:
            raise NetworkError("the master is away")
        opened = replace(self)
        opened.credit = opened._next = first
        return opened

    @property
    def on_the_way(self) -> int:
        return self.credit - self._next

    def ask_up_to(self, number: int) -> None:
        self.credit = number

    def receive(self, buffer: memoryview) -> bool:
        start = self._next * PIECE
        buffer[:] = self.content[start : start + len(buffer)]
        self.asked.append(self._next)
        self._next += 1
        return True

    def cut(self) -> None: ...

    def close(self) -> None: ...


class Node:
    """A worker with its files, its key and its server."""

    def __init__(
        self, name: str, folder: Path, rate_bytes_s: float | None = None, tls: PeerTls | None = None
    ) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.key = grants.worker_key(b"master", name, "boot")
        self.files: dict[str, GrowingFile] = {}
        self.faults: list[tuple[str, FaultKind]] = []
        self.told: list[PeerFault] = []
        self.blamed: dict[Way, float] = {}
        self.fetches: dict[str, PieceFetch] = {}
        self.is_paused = False
        self.now = time.time
        self.tls = tls
        self.server = PeerServer(self, TokenBucket(rate_bytes_s, 2.0**20, time.monotonic()), tls)

    def _hear_of(self, fault: PeerFault) -> None:
        self.told.append(fault)
        self.faults.append((fault.source, fault.kind))

    def holds(self, content: bytes, as_name: str = "") -> str:
        sha256 = as_name or name_of(content)
        path = self.folder / sha256
        path.write_bytes(content)
        self.files[sha256] = GrowingFile(path, len(content), PieceLayout(len(content)).count)
        return sha256

    def fetch_of(self, content: bytes, *sources: FileSource) -> PieceFetch:
        sha256 = name_of(content)
        growing = self.files[sha256] = GrowingFile(self.folder / f"{sha256}.part", len(content))
        fetch = self.fetches[sha256] = PieceFetch(
            sha256, growing, self.name,
            limit=TokenBucket(None, 2.0**20), blamed=self.blamed,
            on_fault=self._hear_of,
            tls=self.tls,
        )  # fmt: skip
        fetch.sources = sources
        return fetch

    def grant_to(self, receiver: str, sha256: str, valid_s: float = 300.0) -> Grant:
        return Grant(sha256, self.name, receiver, time.time() + valid_s)

    def source_for(self, receiver: str, sha256: str, valid_s: float = 300.0, **more: object) -> FileSource:
        grant = self.grant_to(receiver, sha256, valid_s)
        secret = grants.secret_of(self.key, grant).hex()
        made = FileSource(self.name, "127.0.0.1", self.server.port or 1, grant.expires_at, secret)
        return replace(made, **more)  # type: ignore[arg-type]

    def dial_to(self, receiver: Node, source: FileSource, sha256: str) -> Dial:
        grant = Grant(sha256, self.name, receiver.name, source.expires_at)
        assert receiver.server.port
        return Dial(grant, "127.0.0.1", receiver.server.port)

    # Callbacks of its server.

    def secret_of(self, opening: Opening) -> bytes | None:
        grant = opening.grant
        if grant.expires_at <= time.time():
            return None
        if opening.role == "receive":
            return grants.secret_of(self.key, grant) if grant.source == self.name else None
        fetch = self.fetches.get(grant.sha256)
        for source in fetch.sources if fetch else ():
            if (source.worker, source.expires_at) == (grant.source, grant.expires_at) and source.dials_in:
                return bytes.fromhex(source.secret)
        return None

    def find(self, sha256: str) -> GrowingFile | None:
        return self.files.get(sha256)

    def take_over(self, grant: Grant, link: socket.socket) -> None:
        self.fetches[grant.sha256].offer(grant.source, link)

    def note_sent(self, count_bytes: int) -> None:
        """Ignored here."""

    def may_serve(self, sha256: str) -> bool:
        return not self.is_paused


@asynccontextmanager
async def nodes(
    folder: Path, *names: str, rate_bytes_s: float | None = None, tls: Sequence[PeerTls | None] = ()
) -> AsyncIterator[list[Node]]:
    """Run workers of these names with ports on loopback; with ``tls``, encrypted."""
    made = [Node(name, folder, rate_bytes_s, one) for name, one in zip_longest(names, tls)]
    for node in made:
        node.server.open("127.0.0.1", 0)
    serving = [asyncio.create_task(node.server.run()) for node in made]
    try:
        yield made
    finally:
        for node in made:
            for file in node.files.values():
                file.abandon()
            for fetch in node.fetches.values():
                fetch.cut_off()
            node.server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def start(fetch: PieceFetch, content: bytes, master: Callable[[int], object] | None = None) -> asyncio.Future[None]:
    """Run a fetch in a thread; without a master, only workers can give it the file."""
    open_master = master or MasterStub()
    running = asyncio.get_running_loop().run_in_executor(None, fetch.run, list_of(content), open_master)
    return asyncio.ensure_future(running)


def be_patient_with_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers wait for one another as long as a busy computer needs."""
    monkeypatch.setattr(upstreams, "_CONNECT_WITHIN_S", 60.0)
    monkeypatch.setattr(handshake, "HANDSHAKE_WITHIN_S", 60.0)
    monkeypatch.setattr(piece_stream, "SILENT_AFTER_S", 60.0)
    monkeypatch.setattr(piece_fetch, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(piece_fetch, "_MOST_PATIENCE_S", 60.0)
