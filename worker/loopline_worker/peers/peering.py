"""Peering: this worker's part in carrying files between workers, as the master's frames order it.

The link is level-triggered here too. A Report names the files under way, the large ones in the cache and the open
port; an Assign names the sources of each file, best first, and the workers to dial. An order that the next Assign
does not repeat is over. While the master is away, the last orders stand.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from loopline_shared import grants
from loopline_shared.errors import LooplineError
from loopline_shared.model import Result
from loopline_shared.protocol.transfers import (
    PROBE_FILE,
    FileSource,
    FlowMeasured,
    Grant,
    MeasureFlow,
    PeerFault,
    PeerTerms,
)
from loopline_shared.protocol.worker_link import Assign, Welcome
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.host.boot_clock import steady
from loopline_worker.link.http_client import HttpClient
from loopline_worker.link.own_address import address_towards
from loopline_worker.peers.orders_book import CachedFiles, OrdersBook
from loopline_worker.peers.token_bucket import TokenBucket
from loopline_worker.settings import WorkerSettings
from loopline_worker.task_group import TaskGroup

if TYPE_CHECKING:
    from loopline_shared.pieces import PieceList
    from loopline_worker.peers.growing_file import GrowingFile
    from loopline_worker.peers.handshake import Opening
    from loopline_worker.peers.peer_server import PeerServer
    from loopline_worker.peers.peer_tls import PeerTls
    from loopline_worker.peers.piece_fetch import OpenMaster, PieceFetch
    from loopline_worker.peers.upstreams import Upstream

log = logging.getLogger(__name__)

_AT_ONCE = 16
"""Files that are fetched at once, including files that wait by the plan."""
_ANSWER_WITHIN_S = 1.0
"""Time that a fetch waits for the master's orders; then it begins with the master as the source."""
_TELL_FIRST_S, _TELL_GROWTH, _TELL_EVERY_S = 0.1, 1.25, 1.0
"""Pauses between Reports while files are on their way: short at first, because orders change while others come."""
_BURST_S, _LEAST_BURST_BYTES = 0.25, 2.0**20


class ServedCache(CachedFiles, Protocol):
    """The cache, as far as it is served from."""

    def path(self, sha256: str) -> Path:
        """Return the place of a file, which need not be there."""

    async def is_sound(self, sha256: str, check: Callable[[Path], bool] | None = None) -> bool:
        """True if the file is there and its content is right, as ``check`` says if it has to be read."""

    def adopt(self, sha256: str, file: Path) -> None:
        """Have a file of that content here as well. Raises OSError."""


class Peering(AgentWing):
    """Fetches large files from other workers and serves them, once the master has said that workers may do so."""

    def __init__(
        self,
        name: str,
        settings: WorkerSettings,
        http: HttpClient,
        task_group: TaskGroup,
        is_paused: Callable[[], bool] = lambda: False,
        on_sent: Callable[[int], None] = lambda count_bytes: None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._http = http
        self._task_group = task_group
        self._is_paused = is_paused
        self._on_sent = on_sent
        rate = settings.peer_bytes_s
        burst_bytes = max(_LEAST_BURST_BYTES, (rate or 0.0) * _BURST_S)
        self._sends, self._receives = (TokenBucket(rate, burst_bytes, time.monotonic()) for _ in "ab")
        self._threads = ThreadPoolExecutor(_AT_ONCE, "peer-fetch")
        self._book = OrdersBook()
        self._store: ServedCache | None = None
        self._terms: PeerTerms | None = None
        self._clock_s = 0.0  # offset of the master's clock from ours in seconds
        self._server: PeerServer | None = None
        self._tls: PeerTls | None = None
        self._is_telling = False
        self._probes = 0  # that have been asked for
        self._probe_file: IO[bytes] | None = None

    def serve_from(self, store: ServedCache) -> None:
        """Serve the files of this cache."""
        self._store = store

    # What the agent's frames say.

    def connected(self, welcome: Welcome) -> None:
        """Begin a session: report everything again, and open the port the first time."""
        self._book.begin()
        self._terms = welcome.peers if self._settings.peer_files else None
        self.is_awake = self._terms is not None
        if self._terms is None:
            self._close_port()
            return
        self._clock_s = self._terms.now - steady()
        if self._terms.encrypted != (self._tls is not None):
            self._close_port()
        if self._server is None:
            from loopline_worker.peers.peer_server import PeerServer
            from loopline_worker.peers.peer_tls import PeerTls

            self._tls = PeerTls(self._http.trust.identity) if self._terms.encrypted else None
            self._server = PeerServer(self, self._sends, self._tls)
            self._task_group.start(self._listen(self._server))

    def report(self, draft: DraftReport) -> None:
        """Add the files of this worker to the next Report, unless files come from the master alone."""
        if self._terms is not None and self._store is not None:
            port, sent_bytes = (self._server.port, self._server.sent_bytes) if self._server else (None, 0)
            least_bytes = self._terms.least_bytes
            draft.peers = self._book.report(self._store, least_bytes, port=port, sent_bytes=sent_bytes)

    def reported(self, seq: int) -> None:
        """Note that the Report with this number was sent, with the last value of ``report``."""
        if self._terms is not None:
            self._book.reported(seq)

    def assign(self, assign: Assign) -> None:
        """Take in the orders of an Assign."""
        if self._terms is None:
            return
        for order in self._book.take_in(assign):
            if self._server:
                secret = grants.secret_of(bytes.fromhex(self._terms.key), order.grant)
                self._task_group.start(self._server.dial(order, secret))

    def notice(self) -> str:
        """Return the owner's notice about the open port; empty if none is open."""
        if self._server is None or self._server.port is None:
            return ""
        sent, received = self._server.sent_bytes / 1e6, self._book.received_bytes / 1e6
        how = "encrypted" if self._tls else "not encrypted"
        return (
            f"Port {self._server.port} is open to other workers of the grid, for files ({how}): "
            f"{self._server.count} are served now; {sent:,.0f} MB sent and {received:,.0f} MB received since the "
            "worker started."
        )

    def close(self) -> None:
        """Close connections; the port closes with the agent's tasks."""
        if self._server:
            self._server.close()
        if self._probe_file:
            self._probe_file.close()
        self._threads.shutdown(wait=False)

    # Files that come.

    async def fetch(self, sha256: str, part: Path, size_bytes: int | None) -> bool:
        """Fetch a file to ``part``, which may have its beginning. False if the master sends the file itself.

        Raises NetworkError, WrongContentError, GoneError or LooplineError, or OSError for this computer's disk.
        """
        if self._terms is None or (size_bytes or self._terms.least_bytes) < self._terms.least_bytes:
            return False
        from loopline_worker.peers.growing_file import GrowingFile
        from loopline_worker.peers.master_files import MasterFiles
        from loopline_worker.peers.piece_fetch import PieceFetch

        loop, master = asyncio.get_running_loop(), MasterFiles(self._http)
        if size_bytes is None:
            size_bytes = await loop.run_in_executor(self._threads, master.size_of, sha256)
            if size_bytes < self._terms.least_bytes:
                return False
        fetch = PieceFetch(
            sha256, GrowingFile(part, size_bytes), self._name,
            limit=self._receives, blamed=self._book.blamed,
            on_fault=partial(self._has_failed, loop), tls=self._tls,
        )  # fmt: skip
        with self._book.entry(fetch) as answered:
            self._tell()
            pieces = await loop.run_in_executor(self._threads, master.pieces_of, sha256)
            if not pieces.can_be_checked or pieces.size_bytes != size_bytes:
                log.warning("%s comes from the master alone: its list of pieces cannot be used here", sha256)
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_WITHIN_S):
                    await answered.wait()
            await self._run(fetch, pieces, master.open_at(sha256, pieces.layout))
        return True

    async def _run(self, fetch: PieceFetch, pieces: PieceList, open_master: OpenMaster) -> None:
        """Fetch in a thread, which is cancelled when no task waits for the file."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, fetch.run, pieces, open_master)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            fetch.cut_off()
            await asyncio.gather(running, return_exceptions=True)
            raise

    def after_delivery(self, result: Result, folder: Path) -> None:
        """Have the large outputs of a task in the cache: a later job's workers take them from here.

        The master has them already, and so they may be lost.
        """
        if self._terms is None or self._store is None:
            return
        for file in result.outputs:
            if file.size_bytes >= self._terms.least_bytes:
                try:
                    self._store.adopt(file.sha256, folder / file.sha256)
                except OSError as error:
                    log.info("the output %s is not kept for other workers: %s", file.path, error)

    # Measuring an idle grid.

    async def probe(self, probe: MeasureFlow) -> FlowMeasured:
        """Receive from another worker or the master for a while, and return the rate; any probe before ends."""
        self._probes += 1
        if not probe.seconds or self._terms is None:
            return FlowMeasured(probe.number, None, "the probe was called off")
        from loopline_worker.peers import probing

        mine = self._probes
        return await asyncio.get_running_loop().run_in_executor(
            self._threads,
            probing.run,
            probe,
            partial(self._connect_to_probe, probe.source),
            self._receives,
            lambda: self.may_probe() and mine == self._probes,
        )

    def _connect_to_probe(self, source: FileSource | None) -> Upstream:
        """Connect to the source of a probe, a worker or the master."""
        from loopline_worker.peers.master_files import MasterFiles
        from loopline_worker.peers.probing import PROBE_LAYOUT
        from loopline_worker.peers.upstreams import PeerUpstream

        if source:
            return PeerUpstream.connect(source, PROBE_FILE, self._name, 0, self._tls)
        return MasterFiles(self._http).open_probe(PROBE_LAYOUT)

    def may_probe(self) -> bool:
        """True as long as neither tasks nor the owner want this computer."""
        return self.may_serve() and not self.agent.is_wanted

    # What the server asks.

    def secret_of(self, opening: Opening) -> bytes | None:
        """Return the secret of the grant that a caller shows; None if it must not be let in."""
        grant = opening.grant
        if self._terms is None or grant.expires_at <= steady() + self._clock_s:
            return None
        if opening.role == "serve":
            return self._book.secret_of_dialler(grant) if grant.receiver == self._name else None
        return grants.secret_of(bytes.fromhex(self._terms.key), grant) if grant.source == self._name else None

    def find(self, sha256: str) -> GrowingFile | None:
        """Return a file that is here, perhaps yet to be checked, or on its way; None if neither."""
        from loopline_worker.peers.growing_file import GrowingFile

        if sha256 == PROBE_FILE:
            return self._find_probe_file()
        if growing := self._book.file(sha256):
            return growing
        if self._store is None or sha256 not in self._store.sizes:
            return None
        cached = GrowingFile(self._store.path(sha256), self._store.sizes[sha256])
        self._task_group.start(self._check(sha256, cached))
        return cached

    async def _check(self, sha256: str, cached: GrowingFile) -> None:
        """Have a cached file served piece by piece as they are found to be right, if it was not checked before.

        Reading a whole large file is slow enough to make a receiver switch to another source.
        """
        if self._store and await self._store.is_sound(sha256, partial(self._is_right, sha256, cached)):
            cached.grow_to(cached.layout.count)
        else:
            cached.abandon()

    def _is_right(self, sha256: str, cached: GrowingFile, path: Path) -> bool:
        """Check a file by the master's list of its pieces, or as a whole if there is none to be had now."""
        from loopline_worker.files.cache import hash_of
        from loopline_worker.files.receiving import GoneError, NetworkError
        from loopline_worker.peers.master_files import MasterFiles

        try:
            pieces = MasterFiles(self._http).pieces_of(sha256)
        except (NetworkError, GoneError, LooplineError):
            return hash_of(path) == sha256
        if not pieces.can_be_checked or pieces.layout != cached.layout:
            return hash_of(path) == sha256
        with path.open("rb") as file:
            return all(cached.grow_by(file, number, pieces) for number in range(pieces.layout.count))

    def _find_probe_file(self) -> GrowingFile | None:
        """Return a file of holes, which takes no space; it is gone with the agent."""
        from loopline_worker.peers.growing_file import GrowingFile
        from loopline_worker.peers.probing import PROBE_LAYOUT

        if self._probe_file is None:
            self._probe_file = tempfile.NamedTemporaryFile(dir=self._settings.data_dir, prefix="probe-")  # noqa: SIM115
            self._probe_file.truncate(PROBE_LAYOUT.size_bytes)
        file = GrowingFile(Path(self._probe_file.name), PROBE_LAYOUT.size_bytes)
        file.grow_to(file.layout.count)
        return file

    def take_over(self, grant: Grant, link: socket.socket) -> None:
        """Take over the connection of a worker that has dialled in to serve this grant."""
        self._book.offer(grant, link)

    def may_serve(self, sha256: str = "") -> bool:
        """True as long as the owner has not paused the worker, nor anybody wants it if it is for a probe."""
        return not self._is_paused() and not (sha256 == PROBE_FILE and self.agent.is_wanted)

    def note_sent(self, count_bytes: int) -> None:
        """Count what was sent against the owner's allowance."""
        self._on_sent(count_bytes)

    # Helpers.

    def _close_port(self) -> None:
        """Close the port, because the operator no longer wants it, or wants it encrypted."""
        if self._server is not None:
            log.info("the port that was open to other workers is closed")
            self._server.close()
            self._server = None

    async def _listen(self, server: PeerServer) -> None:
        """Open the port on this computer's address towards the master; without one, only dial out."""
        try:
            address = await asyncio.to_thread(address_towards, self._http.master)
            if self._server is not server:
                return
            if not address:
                raise OSError("the way to the master is unknown")
            server.open(address, self._settings.peer_port)
        except OSError as error:
            log.warning("no port can be opened to other workers: %s; files go out by dialling", error)
            return
        self.agent.speak()
        await server.run()

    def _tell(self) -> None:
        """Report now, and then again and again while files are on their way."""
        self.agent.speak()
        if not self._is_telling:
            self._is_telling = True
            self._task_group.start(self._keep_telling())

    async def _keep_telling(self) -> None:
        pause_s = _TELL_FIRST_S
        while self._book.is_fetching:
            await asyncio.sleep(pause_s)
            pause_s = min(_TELL_GROWTH * pause_s, _TELL_EVERY_S)
            self.agent.speak()
        self._is_telling = False

    def _has_failed(self, loop: asyncio.AbstractEventLoop, fault: PeerFault) -> None:
        """Note from any thread that a source failed."""

        def note() -> None:
            self._book.note_fault(fault)
            self.agent.speak()

        loop.call_soon_threadsafe(note)
