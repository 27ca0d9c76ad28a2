"""The exchange: what workers have told of their files, and the orders that follow for each, beside the scheduler.

A worker's Report says which large files it has and fetches; the Assign that answers it says from whom to take them.
Orders go into a frame as it is sent, like the rows of row files: addresses and secrets are never in the event log.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from loopline_master.core.transfers.assumed_network import MASTER
from loopline_master.metrics import Metrics
from loopline_master.peers.chain import Stand, sources_for
from loopline_master.settings import MasterSettings, is_loopback
from loopline_shared import grants
from loopline_shared.protocol.transfers import (
    MAX_DIALS,
    MAX_SOURCES,
    Dial,
    FaultKind,
    Fetching,
    FileFetch,
    FileSource,
    Grant,
    PeerFault,
    PeerOrders,
    PeerReport,
    PeerTerms,
)
from loopline_shared.protocol.worker_link import Assign, Hello, Report
from loopline_shared.rest.bodies import FileFlow

log = logging.getLogger(__name__)

_OUT_FOR_S = {
    FaultKind.UNREACHABLE: 600.0,
    FaultKind.REFUSED: 10.0,
    FaultKind.SILENT: 30.0,
    FaultKind.SLOW: 120.0,
    FaultKind.WRONG_CONTENT: 3600.0,
}
"""So long a source that failed a receiver is not named to it again; one that lied, to nobody."""
_EXPIRY_STEP_S = 300.0
"""Grants expire at multiples of this, so that both ends of a dial are given the same one in two frames."""


@dataclass(slots=True)
class _Peer:
    """A connected worker that takes part, and what it told last."""

    name: str
    session: int
    boot: str
    host: str
    port: int | None = None
    cached: dict[str, int] = field(default_factory=dict)
    fetching: dict[str, Fetching] = field(default_factory=dict)
    received_bytes: int = 0
    dials: dict[tuple[str, str], Dial] = field(default_factory=dict)  # by file and receiver


class Exchange:
    """Knows who has which file and who fetches it. Without ``peers`` in the settings it does nothing."""

    def __init__(self, settings: MasterSettings, key: bytes, metrics: Metrics) -> None:
        self._is_on = settings.scheduler.peers
        self._least_bytes = settings.peer_file_bytes
        self._key = key
        self._metrics = metrics
        self._peers: dict[str, _Peer] = {}
        self._out: dict[tuple[str, str], tuple[FaultKind, float]] = {}  # source and receiver: why, and until when
        self._liars: dict[str, float] = {}

    def terms(self, hello: Hello) -> PeerTerms | None:
        """Return what the Welcome says to a worker; None if its files come from here alone."""
        if not self._is_on:
            return None
        key = grants.worker_key(self._key, hello.worker, hello.boot)
        return PeerTerms(key.hex(), time.time(), self._least_bytes)

    def heard(self, hello: Hello, session: int, host: str | None, report: Report) -> None:
        """Take in what a Report says of files."""
        told = report.peers
        if not self._is_on or told is None or host is None:
            return
        name = hello.worker
        peer = self._peers.get(name)
        if peer is None or peer.session != session:
            peer = self._peers[name] = _Peer(name, session, hello.boot, host, received_bytes=told.received_bytes)
        self._count(peer, told)
        peer.port = told.port
        peer.fetching = {fetching.sha256: fetching for fetching in told.fetching}
        if told.cached is not None:
            peer.cached = {file.sha256: file.size_bytes for file in told.cached}
        for fault in told.faults:
            self._take_in_fault(peer, fault)

    def left(self, worker: str, session: int) -> None:
        """Forget a worker whose link of this session has ended."""
        peer = self._peers.get(worker)
        if peer and peer.session == session:
            del self._peers[worker]

    def with_orders(self, worker: str, assign: Assign) -> Assign:
        """Return the Assign with this worker's orders; unchanged if there are none."""
        peer = self._peers.get(worker)
        if peer is None or not (peer.fetching or peer.dials):
            return assign
        fetches = (FileFetch(sha256, tuple(self._sources(peer, sha256))) for sha256 in peer.fetching)
        orders = PeerOrders(tuple(fetch for fetch in fetches if fetch.sources), tuple(self._dials(peer)))
        return replace(assign, peers=orders) if orders.fetch or orders.dial else assign

    def flows(self) -> list[FileFlow]:
        """Return the files on their way now, as their receivers reported last."""
        return [
            FileFlow(
                sha256=one.sha256,
                source=one.source or MASTER,
                receiver=peer.name,
                rate_bytes_s=one.rate_bytes_s,
                have_bytes=one.have_bytes,
                size_bytes=one.size_bytes,
            )
            for peer in self._peers.values()
            for one in peer.fetching.values()
        ]

    def measure(self) -> None:
        """Set the metrics of files on their way now."""
        on_the_way = [fetching for peer in self._peers.values() for fetching in peer.fetching.values()]
        from_peers = sum(fetching.source is not None for fetching in on_the_way)
        self._metrics.set_transfers(peer=from_peers, master=len(on_the_way) - from_peers)

    def _sources(self, receiver: _Peer, sha256: str) -> Iterator[FileSource]:
        """Yield the sources of a file for a receiver, and note whom that makes dial."""
        size_bytes = receiver.fetching[sha256].size_bytes
        line = sorted(self._line(sha256), key=lambda stand: (stand.place, stand.worker))
        own = next(stand for stand in line if stand.worker == receiver.name)
        for stand in sources_for(own, line, size_bytes)[:MAX_SOURCES]:
            source = self._peers[stand.worker]
            if source.name in self._liars or self._why_out(source, receiver) not in (None, FaultKind.UNREACHABLE):
                continue
            is_reachable = self._can_connect(receiver, source)
            if not is_reachable and not self._can_connect(source, receiver):
                continue
            grant = Grant(sha256, source.name, receiver.name, _expiry(time.time()))
            if not is_reachable and receiver.port:
                source.dials[sha256, receiver.name] = Dial(grant, receiver.host, receiver.port)
            secret = grants.secret_of(grants.worker_key(self._key, source.name, source.boot), grant)
            yield FileSource(
                source.name,
                source.host,
                source.port or 1,
                expires_at=grant.expires_at,
                secret=secret.hex(),
                dials_in=not is_reachable,
            )

    def _line(self, sha256: str) -> Iterator[Stand]:
        """Yield all that have or fetch a file, without those that lied."""
        for peer in self._peers.values():
            place = _place(peer)
            if sha256 in peer.fetching:
                yield Stand(peer.name, place, peer.fetching[sha256].have_bytes)
            elif sha256 in peer.cached and peer.name not in self._liars:
                yield Stand(peer.name, place)

    def _can_connect(self, caller: _Peer, listener: _Peer) -> bool:
        """True if one worker is thought to be able to connect to another one's port."""
        if listener.port is None or (is_loopback(listener.host) and not is_loopback(caller.host)):
            return False
        return self._why_out(listener, caller) is None

    def _why_out(self, source: _Peer, receiver: _Peer) -> FaultKind | None:
        """Return why a worker is not to be named to a receiver now; None if it may be."""
        kind, until = self._out.get((source.name, receiver.name), (None, 0.0))
        return kind if until > time.time() else None

    def _dials(self, peer: _Peer) -> Iterable[Dial]:
        """Return whom a worker is to dial; receivers that have the file by now are forgotten."""
        for sha256, receiver in list(peer.dials):
            if receiver not in self._peers or sha256 not in self._peers[receiver].fetching:
                del peer.dials[sha256, receiver]
        return list(peer.dials.values())[:MAX_DIALS]

    def _take_in_fault(self, receiver: _Peer, fault: PeerFault) -> None:
        now = time.time()
        self._out = {pair: out for pair, out in self._out.items() if out[1] > now}
        self._liars = {name: until for name, until in self._liars.items() if until > now}
        if (fault.source, receiver.name) not in self._out:  # the same fault is told until it is answered
            self._metrics.count_peer_fault(fault.kind)
        until = now + _OUT_FOR_S[fault.kind]
        self._out[fault.source, receiver.name] = fault.kind, until
        if fault.kind is FaultKind.WRONG_CONTENT and fault.source not in self._liars:
            self._liars[fault.source] = until
            log.warning(
                "worker %s sent wrong bytes of %s to %s: it serves nobody for an hour",
                fault.source, fault.sha256, receiver.name,
            )  # fmt: skip

    def _count(self, peer: _Peer, told: PeerReport) -> None:
        self._metrics.count_peer_bytes(max(0, told.received_bytes - peer.received_bytes))
        peer.received_bytes = told.received_bytes


def _place(peer: _Peer) -> tuple[int, ...]:
    """Return a worker's place in the order of addresses, by number and then by port."""
    try:
        address = ipaddress.ip_address(peer.host)
    except ValueError:
        return (0, 0, 0)
    return (address.version, int(address), peer.port or 0)


def _expiry(now: float) -> float:
    return (now + grants.GRANTED_FOR_S) // _EXPIRY_STEP_S * _EXPIRY_STEP_S + _EXPIRY_STEP_S
