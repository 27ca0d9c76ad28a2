"""The link to the master: one connection at a time, opened again whenever it is lost, and its messages.

A Report leaves at once if there is news and the last one is answered; otherwise when the answer comes, or soon. While
attempts wait here for a slot, events of a short time share one Report. So a result that comes alone is never delayed,
and the busier both ends are, the more one Report brings.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ssl import SSLError
from typing import NoReturn, Protocol

from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.protocol import link_session
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.protocol.transfers import FlowMeasured, MeasureFlow
from loopline_shared.protocol.worker_link import (
    MAX_FRAME_BYTES,
    MAX_READS,
    Assign,
    Read,
    Refused,
    Welcome,
    Wrote,
)
from loopline_worker.link.http_client import HttpClient
from loopline_worker.link.upgrade import RejectedError
from loopline_worker.link.websocket import LostError, WebSocket
from loopline_worker.timings import ANSWER_WITHIN_S, GATHER_S, REPORT_WITHIN_S, SHORTEST_REPORT_PAUSE_S

log = logging.getLogger(__name__)

_OPEN_WITHIN_S = 10.0
_CLOSE_WITHIN_S = 1.0
_PASSING = ("version", "same_identity", "too_many_workers")
"""Refusals that a master may take back without anything being done here."""


class _AnewError(LostError):
    """The connection has served its purpose, and the next one is to be opened at once: it says how."""


class Link:
    """Link to the master.

    A refusal ends it only if the master has never accepted this agent, and if waiting cannot change it. Masters are
    upgraded, and computers that have this one's identity switched off: then it is tried again.
    """

    def __init__(self, http_client: HttpClient, listener: ConversationListener) -> None:
        self._http_client = http_client
        self._listener = listener
        self._conversation: Conversation | None = None
        self._lease_s = math.inf
        self._heard_at = -math.inf
        self._backoff = http_client.backoff()
        self._was_welcome = False
        self._complaint = ""
        self._woken = asyncio.Event()
        self._may_connect = asyncio.Event()
        self._may_connect.set()

    @property
    def is_open(self) -> bool:
        """True while the connection stands and the master has welcomed this agent."""
        return self._conversation is not None

    @property
    def own_address(self) -> str:
        """Local address of the open connection; empty if there is none."""
        return self._conversation.own_address if self._conversation else ""

    @property
    def has_been_silent(self) -> bool:
        """True if the master was silent for a lease: it may have given to others what it sent here."""
        return (
            time.monotonic() - (self._conversation.heard_at if self._conversation else self._heard_at) > self._lease_s
        )

    def speak(self) -> None:
        """Send a Report after this turn of the loop, with all its events."""
        if self._conversation:
            self._conversation.speak()

    def speak_now(self) -> None:
        """Send a Report now: all events of this moment are in it."""
        if self._conversation:
            self._conversation.speak_now()

    def speak_soon(self) -> None:
        """Send a Report soon, unless one leaves before."""
        if self._conversation:
            self._conversation.speak_soon()

    def reopen(self, reason: str = "this computer was suspended") -> None:
        """Reconnect at once: the connection is probably dead, or uses an old certificate."""
        self._backoff.reset()
        self._woken.set()
        self._may_connect.set()
        if self._conversation:
            self._conversation.give_up(reason)

    def pause(self) -> None:
        """Do not connect again before ``reopen``. An open connection stays open until the master closes it."""
        self._may_connect.clear()

    async def _pause(self, seconds: float) -> None:
        """Wait, but only until ``reopen`` is called; not at all if it was called since the last connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def keep(self) -> NoReturn:
        """Stay connected. Raises LooplineError if the first connection is refused."""
        while True:
            try:
                await self._may_connect.wait()
                await self._connect_once()
            except LooplineError as refusal:
                if refusal.code == "wrong_name" and self._http_client.trust.drop_shown():
                    continue
                if not self._was_welcome and refusal.code not in _PASSING:
                    raise
                self._complain(f"{refusal.message} ({refusal.hint})", self._backoff.max_s)
                await self._pause(self._backoff.max_s)
            except _AnewError as how:  # the master is there: it has said so
                log.info("connecting again to %s, %s from now on", self._http_client.master, how)
            except (LostError, ProtocolError, OSError, TimeoutError) as error:
                if not self._may_connect.is_set():
                    continue
                await self._http_client.turn_to_next(self._lease_s)
                self._complain(str(error) or "no answer", pause_s := self._backoff.next_s())
                link_session.prepare()  # while it is waited for
                await self._pause(pause_s)

    async def _connect_once(self) -> None:
        request = await self._http_client.trust.request()
        async with self._open() as socket:
            conversation = Conversation(socket, self._listener, self._http_client.master)
            async with asyncio.timeout(_OPEN_WITHIN_S):
                welcome = await conversation.open(request)
            if self._http_client.trust.keep(welcome.certificate):
                raise _AnewError("with a certificate")
            self._lease_s = welcome.lease_s
            self._http_client.link_opened(welcome.lease_s)
            log.info("connected to %s", self._http_client.master)
            await self._listener.ready(welcome)
            self._backoff.reset()
            self._woken.clear()
            self._complaint = ""
            self._was_welcome, self._conversation = True, conversation
            try:
                conversation.begin()
                await socket.ended()
            finally:
                self._conversation, self._heard_at = None, conversation.heard_at
                conversation.end()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[WebSocket]:
        try:
            async with asyncio.timeout(_OPEN_WITHIN_S):
                tls = self._http_client.tls()
                address, headers = self._http_client.address("link"), self._http_client.headers
                socket = await WebSocket.connect(address, headers, MAX_FRAME_BYTES, tls)
        except SSLError as error:
            self._http_client.trust.refused(error)
            raise
        except RejectedError as error:
            raise self._http_client.refusal(error.status) or LostError(self._not_a_master(error)) from None
        try:
            yield socket
        finally:
            await socket.close(_CLOSE_WITHIN_S)

    def _not_a_master(self, answer: RejectedError) -> str:
        """Return the message for a server that is no master. A redirect is not followed: it would get our token."""
        said = f"{self._http_client.master} answered HTTP {answer.status}"
        if answer.location:
            return f"{said}, go to {answer.location[:200]!r}: if the master is there, name that address"
        return f"{said}: is it a Loopline master?"

    def _complain(self, reason: str, pause_s: float) -> None:
        """Log each reason once: an absent master must not fill the log."""
        level = logging.DEBUG if reason == self._complaint else logging.WARNING
        self._complaint = reason
        log.log(level, "not connected: %s; trying again in %.1f s", reason, pause_s)


class ConversationListener(Protocol):
    """Listener to a conversation, which also provides what the link sends."""

    @property
    def has_news(self) -> bool:
        """True if the master does not know all yet."""

    @property
    def is_busy(self) -> bool:
        """True while attempts wait here for a slot."""

    async def ready(self, welcome: Welcome) -> None:
        """Handle the master's message; wait until Reports may be sent."""

    def new_session(self) -> WorkerSession:
        """Return a new session, because a connection was opened."""

    def assigned(self, assign: Assign, frame: bytes) -> None:
        """Take in an Assign, which came in this frame."""

    def report(self, session: WorkerSession) -> bytes:
        """Return the frame of the next Report."""

    async def wrote(self, read: Read) -> Wrote:
        """Return output of an attempt, once there is any."""

    async def probed(self, probe: MeasureFlow) -> FlowMeasured:
        """Return what a probe has measured."""


class Conversation:
    """Conversation from Hello to the end of the connection."""

    def __init__(self, socket: WebSocket, listener: ConversationListener, master: str) -> None:
        self.heard_at = time.monotonic()
        self._socket = socket
        self._listener = listener
        self._master = master
        self._session = listener.new_session()
        self._loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._report_every_s = self._patience_s = 0.0
        self._sent = 0  # the number of the last Report
        self._sent_at = 0.0
        self._is_answered = True
        self._is_due = False
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._answers: set[asyncio.Task[None]] = set()
        socket.on_frame = self._hear
        socket.on_writable = self._go_on

    @property
    def own_address(self) -> str:
        """Local address of the connection."""
        return self._socket.own_address

    async def open(self, request: str = "") -> Welcome:
        """Say Hello, with a request for a certificate, and return the master's Welcome. Raises LooplineError if the
        master refuses.
        """
        self._socket.send(self._session.hello(request))
        link_session.prepare()  # while the master reads it
        await self._socket.until(self._welcome)
        return self._welcome.result()

    def begin(self) -> None:
        """Send the first Report, and from now on enough of them for the master to know that we are alive."""
        self._say()
        self._keep_alive()
        self._mind_silence()

    def end(self) -> None:
        """Stop timers and answers."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._answers:
            task.cancel()

    def give_up(self, reason: str) -> None:
        """End the connection."""
        self._socket.end(LostError(reason))

    def speak(self) -> None:
        """Send a Report after this turn of the loop, with all its events."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def speak_now(self) -> None:
        """Send a Report now: all events of this moment are in it."""
        self._is_due = True
        self._go_on()

    def speak_soon(self) -> None:
        """Send a Report soon, if there is still news then."""
        self._once(REPORT_WITHIN_S, self._tell_news)

    def _tell_news(self) -> None:
        if self._listener.has_news:
            self.speak()

    def _go_on(self) -> None:
        """Send the Report that is due, once the last one is answered or has waited for long enough."""
        if not self._is_due or self._socket.is_over:
            return
        least_s = ANSWER_WITHIN_S if not self._is_answered else GATHER_S if self._listener.is_busy else 0.0
        waits_s = self._sent_at + least_s - time.monotonic()
        if waits_s > 0:
            self._once(waits_s, self._go_on)
        elif self._socket.is_writable:
            self._say()

    def _say(self) -> None:
        self._is_due, self._is_answered = False, False
        self._sent += 1
        self._sent_at = time.monotonic()
        try:
            self._socket.send(self._listener.report(self._session))
        except Exception as error:
            self._socket.end(error)

    def _keep_alive(self) -> None:
        left_s = self._sent_at + self._report_every_s - time.monotonic()
        if left_s <= 0:
            self._say()
        self._once(left_s if left_s > 0 else self._report_every_s, self._keep_alive)

    def _mind_silence(self) -> None:
        """End the connection after a lease of silence: a master answers every Report."""
        left_s = self.heard_at + self._patience_s - time.monotonic()
        if left_s <= 0:
            self._socket.end(LostError(f"{self._master} has been silent for {self._patience_s:g} s"))
        else:
            self._once(left_s, self._mind_silence)

    def _once(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call ``act`` after this delay, unless that is planned already: each action checks whether it is due."""
        if act not in self._timers:
            self._timers[act] = self._loop.call_later(delay_s, self._ring, act)

    def _ring(self, act: Callable[[], None]) -> None:
        del self._timers[act]
        act()

    # What comes.

    def _hear(self, frame: bytes) -> None:
        self.heard_at = time.monotonic()
        message = self._session.receive(frame)
        if isinstance(message, Assign):
            self._is_answered |= message.seen >= self._sent
            self._listener.assigned(message, frame)
            self._go_on()
        elif isinstance(message, Read | MeasureFlow):
            self._answer(message)
        elif not self._welcome.done():
            self._welcome.set_result(self._welcomed(message))

    def _welcomed(self, answer: Welcome | Refused | None) -> Welcome:
        if isinstance(answer, Refused):
            message = f"{self._master} refused this worker: {answer.message}"
            raise LooplineError(answer.code, message, answer.hint, 403)
        if answer is None:
            raise ProtocolError("the master did not say welcome")
        self._report_every_s = max(answer.report_every_s, SHORTEST_REPORT_PAUSE_S)
        self._patience_s = max(answer.lease_s, answer.report_every_s, 1.0)
        return answer

    def _answer(self, question: Read | MeasureFlow) -> None:
        """Answer with output as soon as there is some, or with the result of a probe."""
        if len(self._answers) >= MAX_READS:
            raise ProtocolError(f"more than {MAX_READS} questions at once")
        task = self._loop.create_task(self._write(question))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _write(self, question: Read | MeasureFlow) -> None:
        with suppress(OSError):
            answer: Wrote | FlowMeasured
            if isinstance(question, Read):
                answer = await self._listener.wrote(question)
            else:
                answer = await self._listener.probed(question)
            await self._socket.drain()
            self._socket.send(link_session.encode(answer))
