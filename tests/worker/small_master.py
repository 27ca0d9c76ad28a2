"""A master without a scheduler: sends the frames that a test requests, and records the frames received."""

import asyncio
import hashlib
import socket
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from loopline_shared.checksums import HEADER
from loopline_shared.model import AttemptId, Quarantine, Result
from loopline_shared.protocol import link_session
from loopline_shared.protocol.link_session import MasterSession
from loopline_shared.protocol.worker_link import Assign, Hello, Refused, Report, Run, Welcome
from loopline_shared.rest import direct
from loopline_shared.rest.direct import DirectUpload
from tests.worker.bench import until


@dataclass
class SmallMaster:
    report_every_s: float = 5.0
    lease_s: float = 30.0
    port: int = 0
    acknowledges: bool = True
    is_mute: bool = False  # does not answer Reports
    refuses: Refused | None = None
    status: int = 0  # HTTP status instead of a connection
    location: str = ""  # reason sent with that status
    blob_status: int = 201
    unanswered: int = 0  # requests for files that are to get no answer
    places: list[DirectUpload] = field(default_factory=list)  # past the master, for the next files
    quarantine: Quarantine | None = None  # quarantine to announce
    life: str = ""  # of its database
    tokens: list[str | None] = field(default_factory=list)
    hellos: list[Hello] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    unfinished: dict[str, bytes] = field(default_factory=dict)  # interrupted uploads
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # requests of files: method, name, range
    gate: asyncio.Event = field(default_factory=asyncio.Event)  # downloads wait until it is set
    breaks_off_after: int = 0  # bytes of a download
    tells_lengths: bool = True  # of downloads
    checksums: dict[str, str] = field(default_factory=dict)  # checksums to send, by name
    kept: socket.socket = field(default_factory=socket.socket)  # has the port as long as the test lasts
    _socket: web.WebSocketResponse | None = None
    _seq: int = 0
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def results(self) -> list[Result]:
        return [result for report in self.reports for result in report.results]

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    def result(self, attempt: AttemptId) -> Result:
        return next(result for result in self.results if result.attempt == attempt)

    async def start(self) -> None:
        """Start, also again: the port is kept until then."""
        self.gate.set()
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/api/v1/link", self._link)
        app.router.add_put("/api/v1/files/{sha256}", self._put)
        app.router.add_get("/api/v1/files/{sha256}", self._get)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        if not self.port:
            self.kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
            self.kept.bind(("127.0.0.1", 0))  # without listening
            self.port = self.kept.getsockname()[1]
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_port=True).start()

    async def stop(self) -> None:
        await self.hang_up()
        if self._runner:
            await self._runner.cleanup()

    async def hang_up(self) -> None:
        if self._socket:
            await self._socket.close()

    async def say(self, *runs: Run, cancel: tuple[AttemptId, ...] = ()) -> None:
        await until(lambda: self._socket)
        await self._assign(run=runs, cancel=cancel)

    async def results_of(self, *runs: Run) -> list[Result]:
        await until(lambda: {run.attempt for run in runs} <= {result.attempt for result in self.results})
        return [self.result(run.attempt) for run in runs]

    async def _link(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        if self.status:
            return web.Response(status=self.status, headers={"Location": self.location} if self.location else {})
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        session = MasterSession()
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await self._hear(socket, session.receive(message.data))
        finally:
            if self._socket is socket:  # the agent may have reconnected already
                self._socket = None
        return socket

    async def _hear(self, socket: web.WebSocketResponse, message: Hello | Report | None) -> None:
        if isinstance(message, Hello):
            self.hellos.append(message)
            self._seq = 0
            answer = self.refuses or Welcome(self.report_every_s, self.lease_s, life=self.life)
            await socket.send_bytes(link_session.encode(answer))
            self._socket = None if self.refuses else socket
        elif isinstance(message, Report):
            self.reports.append(message)
            if not self.is_mute:
                await self._assign(seen=message.seq if self.acknowledges else 0)

    async def _assign(self, *, seen: int = 0, run: tuple[Run, ...] = (), cancel: tuple[AttemptId, ...] = ()) -> None:
        self._seq += 1
        assert self._socket
        assign = Assign(self._seq, seen, run, cancel, held_s=0.0, quarantine=self.quarantine)
        await self._socket.send_bytes(link_session.encode(assign))

    def holds(self, content: bytes) -> str:
        """Store a file; return its name."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        return sha256

    async def _get(self, request: web.Request) -> web.StreamResponse:
        """Serve GET and HEAD; send only a part if a test wants interrupted downloads."""
        sha256 = request.match_info["sha256"]
        self.asked.append((request.method, sha256, request.headers.get("Range", "")))
        if self.unanswered:
            self.unanswered -= 1
            await asyncio.Event().wait()
        if request.method == "GET":
            await self.gate.wait()
        if sha256 not in self.blobs:
            if self.places:
                return web.Response(status=404, headers={direct.HEADER: self.places.pop(0).encode()})
            offset = len(self.unfinished.get(sha256, b""))
            return web.Response(status=404, headers={"Upload-Offset": str(offset)} if offset else {})
        content, start = self.blobs[sha256], request.http_range.start or 0
        if start >= len(content) > 0 and start:
            return web.Response(status=416)
        piece = content[start : start + self.breaks_off_after] if self.breaks_off_after else content[start:]
        headers = {HEADER: self.checksums[sha256]} if sha256 in self.checksums else {}
        if request.method == "HEAD" or len(piece) == len(content) - start:
            answer = web.Response(body=piece, status=206 if start else 200, headers=headers)
            if not self.tells_lengths:
                answer.enable_chunked_encoding()
            return answer
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        response.content_length = len(content) - start
        await response.prepare(request)
        await response.write(piece)
        assert request.transport
        request.transport.close()
        return response

    async def _put(self, request: web.Request) -> web.Response:
        data = await request.read()
        self.asked.append(("PUT", request.match_info["sha256"], request.headers.get("Content-Range", "")))
        if span := request.headers.get("Content-Range"):
            start = int(span.removeprefix("bytes ").partition("-")[0])
            data = self.unfinished[request.match_info["sha256"]][:start] + data
        if self.blob_status < 300:
            if hashlib.sha256(data).hexdigest() != request.match_info["sha256"]:
                self.unfinished.pop(request.match_info["sha256"], None)
                return web.Response(status=422)
            self.blobs[request.match_info["sha256"]] = data
        return web.Response(status=self.blob_status)
