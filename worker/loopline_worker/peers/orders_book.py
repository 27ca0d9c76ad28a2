"""The book of orders: fetches under way, and the sources that the master named for each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from loopline_shared.protocol.transfers import (
    MAX_CACHED,
    MAX_FAULTS,
    MAX_FETCHING,
    CachedFile,
    Dial,
    Fetching,
    Grant,
    PeerFault,
    PeerOrders,
    PeerReport,
)
from loopline_shared.protocol.worker_link import Assign

if TYPE_CHECKING:
    from loopline_worker.peers.growing_file import GrowingFile
    from loopline_worker.peers.piece_fetch import PieceFetch, Way


class CachedFiles(Protocol):
    """The files of a cache."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The files by their names; the least recently used come first."""

    @property
    def version(self) -> int:
        """A number that changes when a file comes or goes."""


@dataclass(slots=True)
class _Entry:
    fetch: PieceFetch
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    told: int | None = None  # number of the Report that named it first in this session


class OrdersBook:
    """Fetches under way, by file, and faults that are not reported yet."""

    def __init__(self) -> None:
        self.blamed: dict[Way, float] = {}
        """Ways to sources that failed, and until when they are left alone."""
        self._entries: dict[str, _Entry] = {}
        self._faults: list[tuple[PeerFault, int | None]] = []  # with the number of the Report that named it
        self._told_version: int | None = None  # of the cache, in this session
        self._ended_bytes = 0

    @property
    def is_fetching(self) -> bool:
        """True while any file is on its way."""
        return bool(self._entries)

    @property
    def received_bytes(self) -> int:
        """Received from workers since the start."""
        return self._ended_bytes + sum(entry.fetch.received_bytes for entry in self._entries.values())

    @contextmanager
    def entry(self, fetch: PieceFetch) -> Iterator[asyncio.Event]:
        """Have a fetch in the book while the context lasts. The event is set when the master has answered it."""
        entry = self._entries[fetch.sha256] = _Entry(fetch)
        try:
            yield entry.answered
        finally:
            del self._entries[fetch.sha256]
            self._ended_bytes += fetch.received_bytes
            fetch.file.abandon()

    def file(self, sha256: str) -> GrowingFile | None:
        """Return a file on its way; None if it is not on its way."""
        entry = self._entries.get(sha256)
        return entry.fetch.file if entry else None

    def begin(self) -> None:
        """Begin a session; nothing is reported yet."""
        self._told_version = None
        for entry in self._entries.values():
            entry.told = None
        self._faults = [(fault, None) for fault, _ in self._faults]

    def report(self, cache: CachedFiles, least_bytes: int, *, port: int | None, sent_bytes: int) -> PeerReport:
        """Return what the next Report says."""
        cached = None
        if cache.version != self._told_version:
            self._told_version = cache.version
            large = ((name, size) for name, size in reversed(list(cache.sizes.items())) if size >= least_bytes)
            cached = tuple(CachedFile(name, size) for name, size in islice(large, MAX_CACHED))
        fetching = tuple(_fetching(entry.fetch) for entry in islice(self._entries.values(), MAX_FETCHING))
        faults = tuple(fault for fault, _ in self._faults)
        return PeerReport(port, fetching, cached, faults, sent_bytes=sent_bytes, received_bytes=self.received_bytes)

    def reported(self, seq: int) -> None:
        """Note the number of the Report that has just been made."""
        for entry in self._entries.values():
            if entry.told is None:
                entry.told = seq
        self._faults = [(fault, seq if told is None else told) for fault, told in self._faults]

    def take_in(self, assign: Assign) -> tuple[Dial, ...]:
        """Take in the orders of an Assign; return whom to dial."""
        orders = assign.peers or PeerOrders()
        fetches = {fetch.sha256: fetch for fetch in orders.fetch}
        for sha256, entry in self._entries.items():
            entry.fetch.obey(fetches.get(sha256))
            if entry.told is not None and entry.told <= assign.seen:
                entry.answered.set()
        self._faults = [(fault, told) for fault, told in self._faults if told is None or told > assign.seen]
        return orders.dial

    def note_fault(self, fault: PeerFault) -> None:
        """Note that a source failed; the oldest are forgotten if they stay unreported for long."""
        self._faults = [*self._faults, (fault, None)][-MAX_FAULTS:]

    def secret_of_dialler(self, grant: Grant) -> bytes | None:
        """Return the secret of a worker that dials in, if the master has named it as such for this grant."""
        entry = self._entries.get(grant.sha256)
        for source in entry.fetch.sources if entry else ():
            if source.dials_in and (source.worker, source.expires_at) == (grant.source, grant.expires_at):
                return bytes.fromhex(source.secret)
        return None

    def offer(self, grant: Grant, link: socket.socket) -> None:
        """Give a worker's connection to the fetch that waits for it; close it if there is none any more."""
        if entry := self._entries.get(grant.sha256):
            entry.fetch.offer(grant.source, link)
        else:
            link.close()


def _fetching(fetch: PieceFetch) -> Fetching:
    read = fetch.meter.read()
    return Fetching(
        fetch.sha256, fetch.file.layout.size_bytes, fetch.file.have_bytes, fetch.source,
        rate_bytes_s=read.rate_bytes_s, is_free=read.is_free, is_swift=read.is_swift,
        train_bytes_s=fetch.meter.train_bytes_s,
    )  # fmt: skip
