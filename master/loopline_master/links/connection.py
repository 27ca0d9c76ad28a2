"""The connection of one worker: a protocol session, and a bounded queue of messages that cannot be sent at once.

A message is sent as it is given, unless others wait, the worker reads too slowly, or some of it is to be filled in.
An Assign that but acknowledges results of a worker which has nothing else in hand waits for a moment: mostly a task
follows, and goes with it. Only a worker that offers slots can have one: another is answered at once, as it may wait
for that to end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from loopline_master.admission.busy_time import rest_after
from loopline_master.certificates.job_secrets import has_secrets
from loopline_master.certificates.worker_keys import shown_by
from loopline_master.timings import ACKNOWLEDGE_WITHIN_S, CLOSE_WITHIN_S, HELLO_WITHIN_S
from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.model import AttemptId, Stream
from loopline_shared.protocol.attempt_ranges import count_of
from loopline_shared.protocol.link_session import MasterSession
from loopline_shared.protocol.transfers import FileSource, FlowMeasured, MeasureFlow
from loopline_shared.protocol.websocket_frames import frame_of
from loopline_shared.protocol.worker_link import (
    MAX_READS,
    Assign,
    Hello,
    Read,
    Refused,
    Report,
    ToWorker,
    Welcome,
    Wrote,
)

log = logging.getLogger(__name__)
_COMPARED_WITHIN_S = 1e-6  # an attempt that a Report names, with what is believed
_MAX_REASON_BYTES = 123  # of a WebSocket close frame
Answer = TypeVar("Answer", Wrote, FlowMeasured)
Complete = Callable[[Assign], Awaitable[Assign]]
"""Fills in the parameters that are not held in memory, just before an Assign is sent."""


@dataclass(frozen=True, slots=True)
class _Closing:
    code: int
    reason: str


class WorkerLink:
    """A connection of a worker: a protocol session, and a bounded queue of messages that cannot be sent at once."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        session: int,
        max_frames: int,
        complete: Complete,
        charge: Callable[[float], None],
    ) -> None:
        self.session = session
        self._complete, self._charge = complete, charge
        self.remote = request.remote
        self.shown, self.instance = shown_by(request), ""
        self._transport = request.transport
        self._socket = socket
        self._protocol = MasterSession()
        self._last_report = (0, 0.0)  # number and time of the last Report, until it is answered
        self._may_hold = False  # its answer: it brings results of a worker that has nothing else in hand, and slots
        self._holding: asyncio.TimerHandle | None = None
        self._outgoing: asyncio.Queue[ToWorker | _Closing] = asyncio.Queue(max_frames)
        self._reads: dict[int, asyncio.Future[Wrote | None]] = {}
        self._probes: dict[int, asyncio.Future[FlowMeasured | None]] = {}
        self._numbers = count(1)
        self._rest_s = 0.0
        self._is_queueing = False
        self._sending = asyncio.create_task(self._send_all())
        self._sending.add_done_callback(self._has_stopped)

    @property
    def has_certificate(self) -> bool:
        """True if the worker has shown a certificate of its own."""
        return bool(self.shown.key)

    @property
    def may_answer(self) -> bool:
        """True if a Report that is kept back may be answered."""
        return self._protocol.may_answer

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
        """True if an open link belongs to the same worker: by its key, else by its secret."""
        if present.shown.key:
            return self.shown.key == present.shown.key
        return not present.instance or self.instance == present.instance

    async def next_report(self) -> Report | None:
        """Return the worker's next Report; None if the connection is over. Raises ProtocolError if a message is not
        allowed.
        """
        while message := await self._receive():
            if isinstance(message, Report):
                self._last_report = message.seq, time.monotonic()
                has_attempts = message.holding or message.waiting or message.delivering or message.members
                has_else = has_attempts or message.peers
                self._may_hold = bool(message.results and message.load.slots and not has_else)
                return message
        return None

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
        """Send a message, or queue it, without waiting. A worker that reads too slowly is disconnected: its next
        Report reconciles.
        """
        if isinstance(message, Assign) and self._may_hold and self._but_acknowledges(message):
            self._hold(message)
        else:
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
        if self._holding:
            self._holding.cancel()
        try:
            if not self._socket.closed:
                self.close("good-bye")
                await asyncio.wait([self._sending])
        finally:
            self._sending.cancel()

    def _but_acknowledges(self, assign: Assign) -> bool:
        said = assign.run or assign.cancel or assign.words or assign.peers or assign.quarantine
        return not said and assign.seen == self._last_report[0] and not self._is_queueing

    def _hold(self, assign: Assign) -> None:
        if assign is not self._protocol.held:
            self._protocol.hold(assign)
        if self._holding is None:
            self._holding = asyncio.get_running_loop().call_later(ACKNOWLEDGE_WITHIN_S, self._release)

    def _release(self) -> None:
        """Send the Assign that is held, if no other was sent before."""
        self._holding = None
        if self._protocol.held and self._is_queueing:  # another may be in the queue
            self._hold(self._protocol.held)
        elif self._protocol.held:
            self._put(self._protocol.held)

    def _put(self, item: ToWorker | _Closing) -> None:
        """Send it at once, or else queue it."""
        if isinstance(item, _Closing) or self._is_queueing or _lacks_something(item):
            self._queue(item)
        elif transport := self._writable():
            transport.write(frame_of(self._frame(item)))
        else:
            self._queue(item)

    def _writable(self) -> asyncio.Transport | None:
        """Return the transport if it takes more, and nothing that it has still waits."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() or transport.is_closing() or self._socket.closed:
            return None
        return transport

    def _queue(self, item: ToWorker | _Closing) -> None:
        self._is_queueing = True
        try:
            self._outgoing.put_nowait(item)
        except asyncio.QueueFull:
            self._abort()

    async def _send_all(self) -> None:
        while not isinstance(item := await self._outgoing.get(), _Closing):
            message = await self._complete(item) if isinstance(item, Assign) and _lacks_something(item) else item
            await self._socket.send_bytes(self._frame(message))
            self._is_queueing = not self._outgoing.empty()
        reason = item.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
        await self._socket.close(code=item.code, message=reason)

    def _frame(self, item: ToWorker) -> bytes:
        """Return the frame: of an Assign with the time that its Report spent here, for the rest of the round trip is
        the network's.
        """
        seq, received_at = self._last_report
        if not isinstance(item, Assign) or item.seen != seq:
            return self._protocol.send(item)
        self._last_report = (0, 0.0)
        return self._protocol.send(item, time.monotonic() - received_at)

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
        try:
            message = self._protocol.receive(frame)
        except Exception:
            self._charge(time.perf_counter() - begin)
            raise
        named = _attempts_named(message) if isinstance(message, Report) else 0
        self._rest_s = rest_after(time.perf_counter() - begin + _COMPARED_WITHIN_S * named)
        return message

    def _has_stopped(self, sending: asyncio.Task[None]) -> None:
        error = None if sending.cancelled() else sending.exception()
        if error is not None and not isinstance(error, ConnectionError):
            log.error("sending to %s failed", self.remote, exc_info=error)
        self._abort()

    def _abort(self) -> None:
        if self._transport:
            self._transport.abort()


def _lacks_something(message: ToWorker) -> bool:
    """True if some of a run is to be filled in: a row file's line, a gang's or a job's secret."""
    if not isinstance(message, Assign) or not message.run:
        return False
    return any(run.row_file or run.gang or (run.environment and has_secrets(run)) for run in message.run)


def _attempts_named(report: Report) -> int:
    ranges = report.waiting + report.delivering
    return len(report.holding) + (count_of(ranges) if ranges else 0)


def _resolve(waiting: asyncio.Future[Answer | None] | None, answer: Answer | None) -> None:
    """Pass the answer to whoever waits for it, and may have gone."""
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)
