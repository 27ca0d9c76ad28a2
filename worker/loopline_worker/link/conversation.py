"""The conversation with the master over one connection: sends Reports when due, and takes in frames.

A Report leaves at once if there is news and the last one is answered; otherwise when the answer comes, or soon. While
attempts wait here for a slot there is no hurry, and what happens within a moment goes with one Report. So a result
that comes alone is never delayed, and the busier both ends are, the more one Report brings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.protocol import worker_link
from loopline_shared.protocol.worker_link import MAX_READS, Assign, Read, Refused, Welcome, WorkerSession, Wrote
from loopline_worker.link.websocket import LostError, WebSocket
from loopline_worker.timings import ANSWER_WITHIN_S, GATHER_S, REPORT_WITHIN_S, SHORTEST_REPORT_PAUSE_S


class ConversationListener(Protocol):
    """Listener to a conversation, which also provides what the link sends."""

    @property
    def has_news(self) -> bool:
        """True if the master does not know all yet."""

    is_busy: bool
    """True while attempts wait here for a slot."""

    async def ready(self) -> None:
        """Wait until Reports may be sent."""

    def new_session(self) -> WorkerSession:
        """Return a new session, because a connection was opened."""

    def assigned(self, assign: Assign, frame: bytes) -> None:
        """Take in an Assign, which came in this frame."""

    def report(self, session: WorkerSession) -> bytes:
        """Return the frame of the next Report."""

    async def wrote(self, read: Read) -> Wrote:
        """Return output of an attempt, once there is any."""


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

    async def open(self) -> float:
        """Say Hello and return the master's lease in seconds. Raises LooplineError if the master refuses."""
        self._socket.send(self._session.hello())
        await self._socket.until(self._welcome)
        return self._welcome.result().lease_s

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

    def speak(self) -> None:
        """Send a Report with all that happens before the loop comes round."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def speak_now(self) -> None:
        """Send a Report now, because all that happened together has been taken in."""
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
        elif isinstance(message, Read):
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

    def _answer(self, read: Read) -> None:
        """Answer with output as soon as there is any."""
        if len(self._answers) >= MAX_READS:
            raise ProtocolError(f"more than {MAX_READS} questions at once")
        task = self._loop.create_task(self._write(read))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _write(self, read: Read) -> None:
        with suppress(OSError):
            answer = await self._listener.wrote(read)
            await self._socket.drain()
            self._socket.send(worker_link.encode(answer))
