"""The open links of workers: frames become events on the way in, Assigns become frames on the way out.

A link begins with Hello; Welcome is sent once the worker's joining is on disk. An error on a link closes that link
and nothing else: the worker reconnects, and its first Report brings the master up to date.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from loopline_master.busy_time import BusyTime, rest_after
from loopline_master.certificates.job_secrets import has_secrets
from loopline_master.certificates.worker_keys import Bearer, WorkerKeys, shown_by
from loopline_master.core.effects import Declined
from loopline_master.core.events import WorkerJoined, WorkerLeft, WorkerReported
from loopline_master.engine import Engine
from loopline_master.peers.exchange import Exchange
from loopline_master.settings import MasterSettings
from loopline_master.timings import CLOSE_WITHIN_S, HELLO_WITHIN_S, TWIN_SHOWN_S
from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.model import AttemptId, Stream
from loopline_shared.protocol.transfers import FileSource, FlowMeasured, MeasureFlow
from loopline_shared.protocol.worker_link import (
    MAX_FRAME_BYTES,
    MAX_READS,
    Assign,
    Hello,
    MasterSession,
    Read,
    Refused,
    Report,
    ToWorker,
    Welcome,
    Wrote,
)

log = logging.getLogger(__name__)
_SAME_IDENTITY = "same_identity"
_TAKEN = (
    "another agent works under this name, with a key or a data folder of its own",
    "give this one another --name; if the other has stopped, it is let in as soon as its link is known to be dead",
)
_COMPARED_WITHIN_S = 1e-6  # an attempt that a Report names, with what is believed
_MAX_REASON_BYTES = 123  # of a WebSocket close frame
Answer = TypeVar("Answer", Wrote, FlowMeasured)
Complete = Callable[[Assign], Awaitable[Assign]]
"""Fills in the parameters that are not held in memory, just before an Assign is sent."""
Check = Callable[[Report], Awaitable[Report]]
"""Removes results whose files are missing, before a Report is passed on."""


class WorkerLinks:
    """The open link of each worker. The engine sends through it and never waits for it."""

    def __init__(
        self,
        engine: Engine,
        settings: MasterSettings,
        complete: Complete,
        check: Check,
        exchange: Exchange,
        keys: WorkerKeys,
        busy_time: BusyTime,
        ca: Callable[[], str] = str,
    ) -> None:
        self._engine = engine
        self._busy_time = busy_time
        self._exchange = exchange
        self._complete = complete
        self._check = check
        self._welcome = Welcome(settings.scheduler.report_every_s, settings.scheduler.lease_s)
        self._ca, self._keys = ca, keys
        self._max_frames = settings.limits.max_frames
        self._sessions = count(1)
        self._open: dict[str, WorkerLink] = {}
        self._twins: dict[str, tuple[str, float]] = {}

    def twin(self, worker: str) -> str:
        """Return the address of another computer with its identity, which was refused lately; else empty."""
        remote, at = self._twins.get(worker, ("", 0.0))
        return remote if time.monotonic() - at < TWIN_SHOWN_S else ""

    def deliver(self, worker: str, assign: Assign) -> None:
        """Queue the frame if the worker is connected; otherwise drop it, and the worker's next Report reconciles."""
        if link := self._open.get(worker):
            link.send(assign if assign.peers is None else self._exchange.with_orders(worker, assign))

    async def read(self, worker: str, attempt: AttemptId, stream: Stream, offset: int) -> Wrote | None:
        """Return what an attempt has written from this byte on, once there is some; None if its worker is not
        connected.

        Raises LooplineError if too many readers are waiting.
        """
        link = self._open.get(worker)
        return await link.read(attempt, stream, offset) if link else None

    async def probe(self, worker: str, source: FileSource | None, seconds: float) -> FlowMeasured | None:
        """Have a worker receive from another one, to measure what is between them; None if it is not connected.

        Without a source it receives from the master. For no time its probe under way ends, and there is no answer.
        """
        link = self._open.get(worker)
        return await link.probe(source, seconds) if link else None

    def close(self, worker: str, session: int) -> None:
        """Close the worker's link if it is still the one of this session."""
        link = self._open.get(worker)
        if link is not None and link.session == session:
            link.close("another link of this worker took over, or its lease ended")

    def plain(self) -> list[str]:
        """Return the workers whose links are not encrypted here."""
        return sorted(name for name, link in self._open.items() if not link.is_encrypted)

    def close_plain(self, reason: str) -> None:
        """Close the links that are not encrypted here; their workers connect anew."""
        for name in self.plain():
            self._open[name].close(reason)

    def close_all(self) -> None:
        """Close all links: the master is stopping."""
        for link in self._open.values():
            link.close("the master is stopping", WSCloseCode.GOING_AWAY)

    async def serve(self, request: web.Request, bearer: Bearer) -> web.WebSocketResponse:
        """Serve one connection until it ends."""
        sender = bearer.token or request.remote or ""
        await self._busy_time.rest(sender)
        socket = web.WebSocketResponse(
            compress=False, decode_text=False, max_msg_size=MAX_FRAME_BYTES, timeout=CLOSE_WITHIN_S
        )
        await socket.prepare(request)
        charged = partial(self._busy_time.charged, sender)
        link = WorkerLink(
            request, socket, next(self._sessions), self._max_frames, complete=self._complete, charged=charged
        )
        try:
            await self._serve_worker(link, bearer)
        except ProtocolError as error:
            log.warning("link from %s: %s", request.remote, error)
            link.close(str(error), WSCloseCode.PROTOCOL_ERROR)
        finally:
            await link.end()
        return socket

    async def _serve_worker(self, link: WorkerLink, bearer: Bearer) -> None:
        hello = await link.hello()
        if hello is None:
            return
        admitted = link.refusal() or await self._keys.admit(hello, bearer, link.shown)
        if isinstance(admitted, Refused):
            link.refuse(admitted)
        elif admitted and not link.shown.key:
            link.send(replace(self._welcome, certificate=admitted))
            link.close("connect again with your certificate")
        elif refused := await self._join(hello, link):
            link.refuse(refused)
        else:
            peers = self._exchange.terms(hello, has_certificate=link.has_certificate)
            link.send(replace(self._welcome, peers=peers, ca=self._ca(), certificate=admitted))
            await self._hear(link, hello)

    async def _hear(self, link: WorkerLink, hello: Hello) -> None:
        """Take in the Reports of a worker until its link ends."""
        self._open[hello.worker] = link
        log.info("worker %s joined from %s", hello.worker, link.remote)
        try:
            async for report in link.reports():
                if report.peers is not None:
                    self._exchange.heard(
                        hello, link.session, link.remote, report, has_certificate=link.has_certificate
                    )
                checked = await self._check(report)
                await self._engine.post(WorkerReported(hello.worker, link.session, checked))
        finally:
            self._exchange.left(hello.worker, link.session)
            self._engine.post(WorkerLeft(hello.worker, link.session))
            if self._open.get(hello.worker) is link:
                del self._open[hello.worker]
            log.info("worker %s left", hello.worker)

    async def _join(self, hello: Hello, link: WorkerLink) -> Refused | None:
        link.instance = hello.instance
        if (present := self._open.get(hello.worker)) and not link.may_take_over(present):
            return self._refuse_twin(hello, link, Refused(_SAME_IDENTITY, *_TAKEN))
        reply = await self._engine.post(WorkerJoined(hello.worker, link.session, hello.boot, hello.facts))
        if not isinstance(reply, Declined):
            return None
        refused = Refused(reply.code, reply.message, reply.hint)
        return self._refuse_twin(hello, link, refused) if reply.code == _SAME_IDENTITY else refused

    def _refuse_twin(self, hello: Hello, link: WorkerLink, refused: Refused) -> Refused:
        if not self.twin(hello.worker):
            log.warning("a second computer at %s has the identity of worker %s: refused", link.remote, hello.worker)
        self._twins[hello.worker] = str(link.remote), time.monotonic()
        return refused


def _attempts_named(message: object) -> int:
    if not isinstance(message, Report):
        return 0
    return sum(one.last - one.first + 1 for one in message.waiting) + len(message.holding)


def _lacks_something(assign: Assign) -> bool:
    """True if some of a run is to be filled in: a row file's line, a gang's or a job's secret."""
    return any(run.row_file or run.gang or (run.environment and has_secrets(run)) for run in assign.run)


def _resolve(waiting: asyncio.Future[Answer | None] | None, answer: Answer | None) -> None:
    """Pass the answer to whoever waits for it, and may have gone."""
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)


@dataclass(frozen=True, slots=True)
class _Closing:
    code: int
    reason: str


class WorkerLink:
    """A connection of a worker: a protocol session, and a bounded queue of messages to be sent."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        session: int,
        max_frames: int,
        complete: Complete,
        charged: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.session = session
        self._complete, self._charged = complete, charged
        self.remote = request.remote
        self.shown, self.instance = shown_by(request), ""
        self.is_encrypted = request.secure
        self._transport = request.transport
        self._socket = socket
        self._protocol = MasterSession()
        self._last_report = (0, 0.0)  # number and time of the last Report, until it is answered
        self._outgoing: asyncio.Queue[ToWorker | _Closing] = asyncio.Queue(max_frames)
        self._reads: dict[int, asyncio.Future[Wrote | None]] = {}
        self._probes: dict[int, asyncio.Future[FlowMeasured | None]] = {}
        self._numbers = count(1)
        self._rest_s = 0.0
        self._sending = asyncio.create_task(self._send_all())
        self._sending.add_done_callback(self._has_stopped)

    @property
    def has_certificate(self) -> bool:
        """True if the worker has shown a certificate of its own."""
        return bool(self.shown.key)

    async def hello(self) -> Hello | None:
        """Return the worker's first message; None if it disconnected. Raises ProtocolError if it does not come in
        time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(HELLO_WITHIN_S):
                message = await self._receive()
                return message if isinstance(message, Hello) else None
        raise ProtocolError(f"no hello within {HELLO_WITHIN_S:g} s")

    def refusal(self) -> Refused | None:
        """Return why this worker's version is refused; None if it is not."""
        return self._protocol.refusal()

    def refuse(self, refused: Refused) -> None:
        """Say why, and close."""
        self.send(refused)
        self.close(refused.message)

    def may_take_over(self, present: WorkerLink) -> bool:
        """True if this link is of the same worker as one that is open: by its key, else by its word.

        One of the release before has neither.
        """
        if present.shown.key:
            return self.shown.key == present.shown.key
        return not present.instance or self.instance == present.instance

    async def reports(self) -> AsyncIterator[Report]:
        """Generate the worker's Reports until the connection ends. Raises ProtocolError if a message is not
        allowed.
        """
        while message := await self._receive():
            if isinstance(message, Report):
                self._last_report = message.seq, time.monotonic()
                yield message

    async def read(self, attempt: AttemptId, stream: Stream, offset: int) -> Wrote | None:
        """Ask the worker for output; None if the connection ends first."""
        if len(self._reads) >= MAX_READS:
            message = f"{MAX_READS} readers are waiting for what tasks on this worker write"
            raise LooplineError("too_many_readers", message, "try again in a moment", status=503)
        number = next(self._numbers)
        answer: asyncio.Future[Wrote | None] = asyncio.get_running_loop().create_future()
        self._reads[number] = answer
        self._put(Read(number, attempt, stream, offset))
        return await answer

    async def probe(self, source: FileSource | None, seconds: float) -> FlowMeasured | None:
        """Have the worker measure; None if the connection ends first, or it is to end what it measures."""
        number = next(self._numbers)
        self._put(MeasureFlow(number, source, seconds))
        if not seconds:
            return None
        answer: asyncio.Future[FlowMeasured | None] = asyncio.get_running_loop().create_future()
        self._probes[number] = answer
        return await answer

    def send(self, message: Welcome | Refused | Assign) -> None:
        """Queue a message without waiting. A worker that reads too slowly is disconnected: its next Report
        reconciles.
        """
        self._put(message)

    def close(self, reason: str, code: int = WSCloseCode.OK) -> None:
        """Close after the queued messages have been sent, or abort if that takes too long."""
        self._put(_Closing(code, reason))
        asyncio.get_running_loop().call_later(2 * CLOSE_WITHIN_S, self._abort)

    async def end(self) -> None:
        """Send the queued messages if possible, after reading has ended."""
        for read in self._reads.values():
            _resolve(read, None)
        for probe in self._probes.values():
            _resolve(probe, None)
        self._reads.clear()
        try:
            if not self._socket.closed:
                self.close("good-bye")
                await asyncio.wait([self._sending])
        finally:
            self._sending.cancel()

    def _put(self, item: ToWorker | _Closing) -> None:
        try:
            self._outgoing.put_nowait(item)
        except asyncio.QueueFull:
            self._abort()

    async def _send_all(self) -> None:
        while not isinstance(item := await self._outgoing.get(), _Closing):
            message = await self._complete(item) if isinstance(item, Assign) and _lacks_something(item) else item
            await self._socket.send_bytes(self._protocol.send(self._timed(message)))
        reason = item.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
        await self._socket.close(code=item.code, message=reason)

    def _timed(self, item: ToWorker) -> ToWorker:
        """Return the Assign with the time that its Report spent here: the rest of the round trip is the network's."""
        seq, received_at = self._last_report
        if isinstance(item, Assign) and item.seen == seq:
            self._last_report = (0, 0.0)
            return replace(item, held_s=time.monotonic() - received_at)
        return item

    async def _receive(self) -> Hello | Report | None:
        """Return the next message that is no answer to a Read; None if the connection is over."""
        while (frame := await self._socket.receive()).type in (WSMsgType.BINARY, WSMsgType.TEXT):
            message = await self._read(frame.data)
            if isinstance(message, Wrote):
                _resolve(self._reads.pop(message.number, None), message)
            elif isinstance(message, FlowMeasured):
                _resolve(self._probes.pop(message.number, None), message)
            elif message:
                return message
        return None

    async def _read(self, frame: bytes) -> Hello | Report | Wrote | FlowMeasured | None:
        """Return the message in a frame; the rest that a long one costs comes before the next frame."""
        if self._rest_s:
            await asyncio.sleep(self._rest_s)
        begin = time.perf_counter()
        with self._charged():
            message = self._protocol.receive(frame)
        self._rest_s = rest_after(time.perf_counter() - begin + _COMPARED_WITHIN_S * _attempts_named(message))
        return message

    def _has_stopped(self, sending: asyncio.Task[None]) -> None:
        error = None if sending.cancelled() else sending.exception()
        if error is not None and not isinstance(error, ConnectionError):
            log.error("sending to %s failed", self.remote, exc_info=error)
        self._abort()

    def _abort(self) -> None:
        if self._transport:
            self._transport.abort()
