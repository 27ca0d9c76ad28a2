"""The exchange: addresses and secrets for the scheduler's orders, and the current flows.

The scheduler decides on sources (core/wings/transfers/carrying.py). It names workers. How they reach
each other is put into a frame as it is sent, like the rows of row files: addresses and secrets are never in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.metrics import Metrics
from loopline_master.settings import MasterSettings, is_loopback
from loopline_shared import grants
from loopline_shared.protocol.transfers import (
    PROBE_FILE,
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

_UNREACHABLE_FOR_S = 600.0
"""Time that an unreachable worker dials the other one, which then tries again."""
_COUNTED_AGAIN_S = 10.0
"""A fault is reported until it is acknowledged, but counted only once in this time."""
_EXPIRY_STEP_S = 300.0
"""Grants expire at multiples of this, so that both ends of a dial are given the same one in two frames."""


@dataclass(slots=True)
class _Peer:
    """A connected worker that takes part, and its last report."""

    name: str
    session: int
    boot: str
    host: str
    is_encrypted: bool = False
    """True if it has a certificate: such workers speak TLS with one another, and with no others."""
    subnet: str | None = None
    port: int | None = None
    fetching: dict[str, Fetching] = field(default_factory=dict)
    received_bytes: int = 0


class Exchange:
    """Knows how workers reach each other. Without ``peers`` in the settings it does nothing.

    ``is_encrypted`` says whether the grid is, without which files go between workers only if an operator said so.
    """

    def __init__(
        self,
        settings: MasterSettings,
        key: bytes,
        metrics: Metrics,
        is_encrypted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when a worker comes or goes, or tells of a file on its way."""
        self._peers_setting = "off" if settings.files else settings.peers  # a bucket serves as many as come
        self._is_encrypted = is_encrypted
        self._least_bytes = settings.peer_file_bytes
        self._key = key
        self._metrics = metrics
        self._peers: dict[str, _Peer] = {}
        self._faults: dict[tuple[str, str, FaultKind], float] = {}  # source, receiver: end, by time.monotonic

    @property
    def is_on(self) -> bool:
        """True if files may go between workers."""
        return self._peers_setting == "on" or (self._peers_setting == "auto" and self._is_encrypted())

    def terms(self, hello: Hello, *, has_certificate: bool = False) -> PeerTerms | None:
        """Return what the Welcome says to a worker; None if its files come from here alone.

        In an encrypted grid, as those of a worker without a certificate do.
        """
        if not self.is_on or (self._is_encrypted() and not has_certificate):
            return None
        key = grants.worker_key(self._key, hello.worker, hello.boot)
        return PeerTerms(key.hex(), time.time(), self._least_bytes, has_certificate)

    def heard(
        self, hello: Hello, session: int, host: str | None, report: Report, *, has_certificate: bool = False
    ) -> None:
        """Store the port and the flows of a worker's Report."""
        told = report.peers
        if not self.is_on or told is None or host is None:
            return
        name = hello.worker
        peer = self._peers.get(name)
        if peer is None or peer.session != session:
            peer = self._peers[name] = _Peer(
                name, session, hello.boot, host, is_encrypted=has_certificate,
                subnet=hello.facts.link.subnet if hello.facts.link else None, received_bytes=told.received_bytes,
            )  # fmt: skip
            self.on_change()
        self._count(peer, told)
        peer.port = told.port
        if told.fetching:
            self.on_change()
        peer.fetching = {fetching.sha256: fetching for fetching in told.fetching}
        for fault in told.faults:
            self._take_in_fault(peer, fault)

    def left(self, worker: str, session: int) -> None:
        """Forget a worker whose link of this session has ended."""
        peer = self._peers.get(worker)
        if peer and peer.session == session:
            del self._peers[worker]
            self.on_change()

    def with_orders(self, worker: str, assign: Assign) -> Assign:
        """Return the Assign with addresses and secrets; sources that cannot be reached now are left out."""
        if assign.peers is None:
            return assign
        peer, fetch, dial = self._peers.get(worker), assign.peers.fetch, assign.peers.dial
        if peer is None:
            return replace(assign, peers=None)
        orders = PeerOrders(
            tuple(replace(order, sources=tuple(self._sources(peer, order))) for order in fetch),
            tuple(self._dials(peer, dial)),
        )
        return replace(assign, peers=orders if orders.fetch or orders.dial else None)

    def port_for(self, caller: str, listener: str) -> int | None:
        """Return the port where one worker can connect to another; None if it cannot."""
        one, other = self._peers.get(caller), self._peers.get(listener)
        return other.port if one and other and self._can_connect(one, other) else None

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
                is_free=one.is_free,
            )
            for peer in self._peers.values()
            for one in peer.fetching.values()
        ]

    def swift(self) -> frozenset[tuple[str, str]]:
        """Return source and receiver of the flows that the network does not limit, as reported by the receivers."""
        return frozenset(
            (one.source or MASTER, peer.name)
            for peer in self._peers.values()
            for one in peer.fetching.values()
            if one.is_swift
        )

    def trains(self) -> dict[tuple[str, str], float]:
        """Return the rate of first pieces, by source and receiver, in bytes per second."""
        return trains({peer.name: peer.fetching.values() for peer in self._peers.values()})

    def reachable(self) -> list[str]:
        """Return the workers whose ports are open to others, by name."""
        return sorted(peer.name for peer in self._peers.values() if peer.port)

    def probe_source(self, source: str, receiver: str) -> FileSource | None:
        """Return the one as a source of probes to the other; None if they cannot connect."""
        one, other = self._peers.get(source), self._peers.get(receiver)
        if one is None or other is None or not self._can_connect(other, one):
            return None
        return self._granted(one, Grant(PROBE_FILE, source, receiver, _expiry(time.time())))

    def measure(self) -> None:
        """Set the metrics of files on their way now."""
        on_the_way = self.flows()
        for source, is_master in (("peer", False), ("master", True)):
            mine = [flow for flow in on_the_way if (flow.source == MASTER) is is_master]
            rate, left = sum(flow.rate_bytes_s for flow in mine), sum(one.size_bytes - one.have_bytes for one in mine)
            self._metrics.set_transfers(source, len(mine), rate, left)

    def _sources(self, receiver: _Peer, order: FileFetch) -> Iterator[FileSource]:
        """Yield the order's sources as the receiver can use them."""
        for named in order.sources:
            source = self._peers.get(named.worker)
            if source is None:
                continue
            is_reachable = self._can_connect(receiver, source)
            if is_reachable or self._can_connect(source, receiver):
                grant = Grant(order.sha256, source.name, receiver.name, _expiry(time.time()))
                yield self._granted(source, grant, dials_in=not is_reachable)

    def _granted(self, source: _Peer, grant: Grant, *, dials_in: bool = False) -> FileSource:
        secret = grants.secret_of(grants.worker_key(self._key, source.name, source.boot), grant).hex()
        return FileSource(
            source.name, source.host, source.port or 1,
            expires_at=grant.expires_at, secret=secret, dials_in=dials_in,
        )  # fmt: skip

    def _dials(self, source: _Peer, served: Iterable[Dial]) -> Iterator[Dial]:
        """Yield those of the receivers that a source is to dial, for they cannot reach it."""
        for dial in served:
            receiver = self._peers.get(dial.grant.receiver)
            if receiver and not self._can_connect(receiver, source) and self._can_connect(source, receiver):
                assert receiver.port
                grant = replace(dial.grant, expires_at=_expiry(time.time()))
                yield Dial(grant, receiver.host, receiver.port)

    def _can_connect(self, caller: _Peer, listener: _Peer) -> bool:
        """True if one worker is thought to be able to connect to another one's port."""
        if listener.port is None or (is_loopback(listener.host) and not is_loopback(caller.host)):
            return False
        if caller.is_encrypted != listener.is_encrypted:
            return False
        if self._peers_setting == "auto" and caller.subnet != listener.subnet:
            return False
        return self._faults.get((listener.name, caller.name, FaultKind.UNREACHABLE), 0.0) <= time.monotonic()

    def _take_in_fault(self, receiver: _Peer, fault: PeerFault) -> None:
        now = time.monotonic()
        self._faults = {known: until for known, until in self._faults.items() if until > now}
        known = fault.source, receiver.name, fault.kind
        if known not in self._faults:
            self._metrics.count_peer_fault(fault.kind)
            if fault.kind is FaultKind.WRONG_CONTENT:
                log.warning("worker %s sent wrong bytes of %s to %s", fault.source, fault.sha256, receiver.name)
        is_unreachable = fault.kind is FaultKind.UNREACHABLE
        self._faults[known] = now + (_UNREACHABLE_FOR_S if is_unreachable else _COUNTED_AGAIN_S)

    def _count(self, peer: _Peer, told: PeerReport) -> None:
        self._metrics.count_peer_bytes(max(0, told.received_bytes - peer.received_bytes))
        peer.received_bytes = told.received_bytes


def trains(fetching: Mapping[str, Iterable[Fetching]]) -> dict[tuple[str, str], float]:
    """Return the rate of first pieces, by source and receiver, in bytes per second, from each receiver's files."""
    return {
        (one.source or MASTER, name): one.train_bytes_s
        for name, files in fetching.items()
        for one in files
        if one.train_bytes_s
    }


def _expiry(now: float) -> float:
    return (now + grants.GRANTED_FOR_S) // _EXPIRY_STEP_S * _EXPIRY_STEP_S + _EXPIRY_STEP_S
