"""Fetching a file piece by piece, in a thread: from the first source that can give it, the master after all others.

Each piece is checked against the master's list before anybody else sees it. It is written, and workers that fetch the
file from here get it at once. When a source fails, the next one continues where it stopped. When the master names
better sources, the bytes in flight are received first, so that none crosses a cable twice.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable
from typing import IO

from loopline_shared.pieces import PieceList
from loopline_shared.protocol.transfers import FaultKind, FileFetch, FileSource, PeerFault
from loopline_worker.files.receiving import NetworkError, WrongContentError, write_all
from loopline_worker.peers.flow_meter import FlowMeter
from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.peer_tls import PeerTls
from loopline_worker.peers.piece_stream import LEAST_BYTES_S
from loopline_worker.peers.token_bucket import TokenBucket
from loopline_worker.peers.upstreams import MasterUpstream, PeerUpstream, SourceError, Upstream

log = logging.getLogger(__name__)

_FORGIVEN_AFTER_S = {
    FaultKind.UNREACHABLE: 30.0,
    FaultKind.REFUSED: 2.0,
    FaultKind.SILENT: 5.0,
    FaultKind.SLOW: 30.0,
    FaultKind.WRONG_CONTENT: math.inf,
}
"""Time until a failed source is asked again, if the master still names it."""
_PATIENCE_S, _LINE_PATIENCE_S, _MOST_PATIENCE_S = 1.0, 0.5, 8.0
"""Time until a live source without new pieces is left; extra time for each worker before it in the line, which should
leave first; and the maximum, if the source's owner limits it."""
_PIECES_PATIENCE = 3
"""... plus the time of this many pieces."""
_SLOW_AFTER_S = 3.0
_LEAST_SHARE = 1 / 8
"""A source is left if it stays below the least rate of a stream, or below this share of both the planned rate and an
earlier one: a plan may follow from capacities that are merely assumed."""
_LOOK_EVERY_S = 0.05
_ORDER_HOLDS_S = 5.0
"""Time that an order to wait, or to take no more for now, is valid, unless the next one repeats it."""

OpenMaster = Callable[[int], MasterUpstream]
"""Connects to the master, for the pieces from a number on. Raises NetworkError."""
OnFault = Callable[[PeerFault], None]
"""Hears, in the fetching thread, of a worker that failed as a source."""
Way = tuple[str, bool]
"""A worker, and whether it dials in."""


class PieceFetch:
    """A file on its way here. ``run`` has a thread of its own; all else is for the event loop."""

    def __init__(
        self,
        sha256: str,
        file: GrowingFile,
        receiver: str,
        *,
        limit: TokenBucket,
        blamed: dict[Way, float],
        on_fault: OnFault,
        tls: PeerTls | None = None,
    ) -> None:
        self.sha256 = sha256
        self.file = file
        self.sources: tuple[FileSource, ...] = ()
        """Sources in order of preference; the master may change them at any time."""
        self._rate: float | None = None  # planned, in bytes per second
        self._waits_until = self._until_at = 0.0
        self._until_bytes = 0
        self.source: str | None = None
        """The worker that sends pieces now; None: the master, or none yet."""
        self.received_bytes = 0
        """From workers."""
        self.meter = FlowMeter()
        """Of what comes from the present source."""
        self._receiver, self._tls = receiver, tls
        self._limits = [limit, TokenBucket(None, limit.burst_bytes)]  # the owner's, and the plan's
        self._on_fault = on_fault
        self._blamed = blamed  # until when; all fetches share it
        self._dialled: dict[str, socket.socket] = {}
        self._upstream: Upstream | None = None
        self._is_cut_off = False

    def obey(self, order: FileFetch | None) -> None:
        """Take in the master's order for this file; None if it has none."""
        self.sources = order.sources if order else ()
        self._rate = order.rate_bytes_s if order else None
        holds_until = time.monotonic() + _ORDER_HOLDS_S
        self._waits_until = holds_until if order and order.waits else 0.0
        self._until_bytes = order.until_bytes or 0 if order else 0
        self._until_at = holds_until if self._until_bytes else 0.0

    def offer(self, worker: str, link: socket.socket) -> None:
        """Take over the connection of a worker that has dialled in, after the handshake."""
        if before := self._dialled.pop(worker, None):
            before.close()
        self._dialled[worker] = link

    def cut_off(self) -> None:
        """End ``run`` soon, because no task waits for the file."""
        self._is_cut_off = True
        if upstream := self._upstream:
            upstream.cut()

    def run(self, pieces: PieceList, open_master: OpenMaster) -> None:
        """Fetch the file; its beginning may be here already.

        Raises NetworkError if no source can go on now, WrongContentError if the master's own bytes do not match,
        GoneError if it does not have the file, and OSError for this computer's disk.
        """
        growing = self.file
        growing.path.touch()
        try:
            with growing.path.open("r+b", buffering=0) as file:
                growing.grow_to(_resume(file, pieces))
                place = _Place(growing, pieces, file)
                while not growing.is_complete:
                    self._wait()
                    self._take_from_one(place, open_master)
        finally:
            growing.abandon()
            for link in self._dialled.values():
                link.close()

    def _wait(self) -> None:
        """Wait as long as the master says so and is reachable."""
        while self._is_to_wait:
            self._check_wanted()
            time.sleep(_LOOK_EVERY_S)

    @property
    def _is_to_wait(self) -> bool:
        return time.monotonic() < self._waits_until

    @property
    def _most_bytes(self) -> int:
        """The part of the file that may be taken now."""
        return self._until_bytes if time.monotonic() < self._until_at else self.file.layout.size_bytes

    def _take_from_one(self, place: _Place, open_master: OpenMaster) -> None:
        """Take pieces from the best source, until another one is better or this one fails."""
        best, have = self._best(), self.file.have
        try:
            upstream = self._upstream = self._connect(best, have) if best else open_master(have)
            self.source = best.worker if best else None
            self.meter.begin()
            self._check_wanted()
            self._fetch_pieces(_Taking(upstream, place, self._limits, self.meter, is_peer=best is not None), best)
        except SourceError as error:
            assert best
            self._blame(best, error)
        finally:
            if self._upstream:
                self._upstream.close()
            self._upstream = self.source = None
            self.meter.begin()  # without a source, its reading would count as the master's

    def _fetch_pieces(self, taking: _Taking, source: FileSource | None) -> None:
        while not self.file.is_complete:
            best = self._best()
            is_leaving = _way(best) != _way(source) and self.file.have_bytes < self._most_bytes
            self._limits[1].change(self._rate, time.monotonic())
            taking.expect(self._rate, behind=self._behind(source))
            if not taking.ask(self._most_bytes, is_leaving=is_leaving or self._is_to_wait):
                return
            self._check_wanted()
            have_bytes = self.file.have_bytes
            try:
                taking.receive()
            finally:
                self.received_bytes += self.file.have_bytes - have_bytes if source else 0

    def _best(self) -> FileSource | None:
        """Return the first source that can be asked now; None: the master."""
        now = time.monotonic()
        for source in self.sources:
            is_blamed = self._blamed.get((source.worker, source.dials_in), 0.0) > now
            if not is_blamed and (not source.dials_in or source.worker in (*self._dialled, self.source)):
                return source
        return None

    def _behind(self, source: FileSource | None) -> int:
        """Return how many workers a source is behind in its line: they are named after it."""
        ways = [_way(one) for one in self.sources]
        return len(ways) - 1 - ways.index(_way(source)) if _way(source) in ways else 0

    def _connect(self, source: FileSource, first: int) -> PeerUpstream:
        if not source.dials_in:
            return PeerUpstream.connect(source, self.sha256, self._receiver, first, self._tls)
        link = self._dialled.pop(source.worker)
        try:
            return PeerUpstream(link, first)
        except OSError as error:
            link.close()
            raise SourceError.silent(error) from None

    def _blame(self, source: FileSource, error: SourceError) -> None:
        self._check_wanted()  # it was we who hung up
        self._blamed[source.worker, source.dials_in] = time.monotonic() + _FORGIVEN_AFTER_S[error.kind]
        level = logging.WARNING if error.kind is FaultKind.WRONG_CONTENT else logging.INFO
        log.log(level, "worker %s is %s as a source of %s: %s", source.worker, error.kind, self.sha256, error)
        self._on_fault(PeerFault(self.sha256, source.worker, error.kind, error.lives))

    def _check_wanted(self) -> None:
        if self._is_cut_off:
            raise NetworkError("the file is no longer wanted")


def _way(source: FileSource | None) -> Way | None:
    return (source.worker, source.dials_in) if source else None


class _Place:
    """The file into which pieces are written, once they are checked."""

    def __init__(self, growing: GrowingFile, pieces: PieceList, file: IO[bytes]) -> None:
        self.growing = growing
        self._pieces = pieces
        self._file = file
        self._buffer = memoryview(bytearray(growing.layout.piece_bytes))

    def buffer(self) -> memoryview:
        """Return a buffer of the size of the next piece."""
        return self._buffer[: self.growing.layout.length(self.growing.have)]

    def put(self, piece: memoryview) -> bool:
        """Check the next piece, write it, and let others have it. False if it is not the right one."""
        number = self.growing.have
        if not self._pieces.is_sound(number, piece):
            return False
        self._file.seek(self.growing.layout.start(number))
        write_all(self._file, piece)
        self.growing.grow_to(number + 1)
        return True


class _Taking:
    """Pieces as they come from one upstream, at the rate that owner and plan allow."""

    def __init__(
        self,
        upstream: Upstream,
        place: _Place,
        limits: list[TokenBucket],
        meter: FlowMeter,
        *,
        is_peer: bool,
    ) -> None:
        self._upstream = upstream
        self._place = place
        self._growing = place.growing
        self._limits = limits
        self._meter = meter
        self._is_peer = is_peer
        self._planned, self._behind = 0.0, 0
        self._starved_s = self._waited_s = 0.0
        self._got_bytes = 0
        self.has_come = True
        """False if the source has just said that it has nothing: then nothing is in the cables either."""

    def expect(self, planned: float | None, behind: int) -> None:
        """Note the planned rate, and the position of the source in its line."""
        self._planned, self._behind = planned or 0.0, behind

    def ask(self, most_bytes: int, *, is_leaving: bool) -> bool:
        """Ask for more of the first ``most_bytes``, unless this source is being left. False if no more will come.

        A source that was dropped and has no more itself may be waiting for pieces from here: it is not waited for.
        """
        upstream, layout = self._upstream, self._growing.layout
        window = max(2, upstream.window_bytes // layout.piece_bytes)
        count = -(-most_bytes // layout.piece_bytes)
        goal = upstream.credit if is_leaving else min(layout.count, count, self._growing.have + window)
        number, now = upstream.credit, time.monotonic()
        while number < goal and not any(limit.wait_s(now) for limit in self._limits):
            for limit in self._limits:
                limit.spend(layout.length(number), now)
            number += 1
        if number > upstream.credit:
            upstream.ask_up_to(number)
        return not is_leaving or (upstream.on_the_way > 0 and self.has_come)

    def receive(self) -> None:
        """Take in the next piece if it comes. Raises SourceError, NetworkError or WrongContentError."""
        self.has_come = True
        if not self._upstream.on_the_way:
            self._meter.hold_back()
            time.sleep(_LOOK_EVERY_S)  # a limit is used up
            return
        since, piece = time.monotonic(), self._place.buffer()
        has_come = self.has_come = self._upstream.receive(piece)
        waited_s = time.monotonic() - since
        if has_come and not self._place.put(piece):
            reason = f"piece {self._growing.have} does not match its hash"
            raise SourceError(FaultKind.WRONG_CONTENT, reason) if self._is_peer else WrongContentError(reason)
        if has_come:
            self._meter.count(len(piece), self._upstream.took_s, is_late=self._upstream.is_late)
        else:
            self._meter.starve()
        if self._is_peer:
            self._mind_rate(waited_s, len(piece) if has_come else 0)

    def _mind_rate(self, waited_s: float, got_bytes: int) -> None:
        """Raises SourceError if the source had nothing for too long, or sends its pieces too slowly."""
        if not got_bytes:
            self._starved_s += waited_s
            if self._starved_s > self._patience_s():
                reason = f"it has had nothing for {self._starved_s:.1f} s"
                raise SourceError(FaultKind.SILENT, reason, lives=True)
            return
        self._starved_s = 0.0
        self._waited_s += waited_s
        self._got_bytes += got_bytes
        if self._waited_s > _SLOW_AFTER_S:
            rate = self._got_bytes / self._waited_s
            if rate < max(LEAST_BYTES_S, _LEAST_SHARE * min(self._planned, self._meter.fastest)):
                raise SourceError(FaultKind.SLOW, f"{rate:,.0f} bytes/s")
            self._meter.fastest = max(rate, self._meter.fastest)
            self._waited_s, self._got_bytes = 0.0, 0

    def _patience_s(self) -> float:
        """Return how long a source may have nothing."""
        rates = [rate for rate in (self._planned, self._meter.fastest) if rate > 0]
        piece_s = self._growing.layout.piece_bytes / max(LEAST_BYTES_S, min(rates, default=2.0**20))
        patience_s = _PATIENCE_S + _LINE_PATIENCE_S * self._behind + _PIECES_PATIENCE * piece_s
        return _MOST_PATIENCE_S if self._upstream.is_limited else min(patience_s, _MOST_PATIENCE_S)


def _resume(file: IO[bytes], pieces: PieceList) -> int:
    """Return how many pieces are in the file already, and cut off what is behind them."""
    layout, have = pieces.layout, 0
    while have < layout.count and len(piece := file.read(layout.length(have))) == layout.length(have):
        if not pieces.is_sound(have, piece):
            break
        have += 1
    file.truncate(layout.start(have))
    return have
