"""Large files of a machine: those in its cache, its fetches, and the master's orders; callers decide their speed.

It stands for a worker's cache and its part in carrying (loopline_worker/peers); nothing is sent.
"""

from __future__ import annotations

from dataclasses import replace

from loopline_shared.protocol.transfers import (
    CachedFile,
    FaultKind,
    Fetching,
    FileFetch,
    FileSource,
    PeerFault,
    PeerOrders,
    PeerReport,
)
from loopline_shared.protocol.worker_link import Assign

SIZE_BYTES = 2**30
_PORT, _SECRET = 7462, "0" * 64


def filled_in(assign: Assign) -> Assign:
    """Return the Assign with addresses and secrets, as a master sends it."""
    if assign.peers is None:
        return assign
    fetch = tuple(
        replace(
            order, sources=tuple(FileSource(one.worker, "10.0.0.1", _PORT, 1.0, _SECRET) for one in order.sources)
        )
        for order in assign.peers.fetch
    )
    return replace(assign, peers=PeerOrders(fetch))


class MachineFiles:
    """Files by name, each of ``SIZE_BYTES``; ``orders`` are those of the last Assign."""

    def __init__(self) -> None:
        self.has: set[str] = set()
        self.fetching: dict[str, int] = {}  # bytes of each that are there
        self.orders: dict[str, FileFetch] = {}
        self._faults: dict[PeerFault, None] = {}
        self._told: frozenset[str] | None = None  # files reported in this session

    def begin(self) -> None:
        """Begin a session; the master knows none of the files yet."""
        self._told, self.orders = None, {}

    def boot(self, *, loses_cache: bool) -> None:
        """Restart the agent and abandon its fetches."""
        self.begin()
        self.fetching.clear()
        self._faults.clear()
        if loses_cache:
            self.has.clear()

    def want(self, file: str) -> None:
        """Begin to fetch a file, unless it is there."""
        if file not in self.has:
            self.fetching.setdefault(file, 0)

    def receive(self, file: str, count: int) -> None:
        """Add ``count`` bytes to a fetch, which is complete once all have arrived."""
        self.fetching[file] = min(SIZE_BYTES, self.fetching[file] + count)
        if self.fetching[file] == SIZE_BYTES:
            del self.fetching[file]
            self.has.add(file)

    def blame(self, file: str, kind: FaultKind, lives: bool | None = None) -> None:
        """Turn away from the first source that is ordered."""
        order = self.orders.get(file)
        if order and order.sources:
            self._faults[PeerFault(file, order.sources[0].worker, kind, lives)] = None

    def report(self) -> PeerReport:
        """Return what the next Report says."""
        cached, has = None, frozenset(self.has)
        if has != self._told:
            self._told, cached = has, tuple(CachedFile(file, SIZE_BYTES) for file in sorted(has))
        fetching = tuple(Fetching(file, SIZE_BYTES, count) for file, count in self.fetching.items())
        return PeerReport(_PORT, fetching, cached, tuple(self._faults))

    def obey(self, assign: Assign) -> None:
        """Take in the orders of an Assign."""
        self.orders = {order.sha256: order for order in assign.peers.fetch} if assign.peers else {}
        self._faults.clear()
