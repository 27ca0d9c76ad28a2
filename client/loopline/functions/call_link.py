"""The WebSocket link to the master on which jobs of calls are submitted, and their results arrive as they are
committed.

Every submitted or followed job has a Listener. If the link is lost, another one is opened: submissions without an
answer are sent again, and each job is followed on from the last result that came.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from loopline.functions.loop_thread import run_at_once
from loopline.http import COME_AGAIN, Backoff, UnavailableError, problem_error
from loopline.rest_client import RestClient
from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.protocol.client_link import (
    Drop,
    Ends,
    Follow,
    JobAccepted,
    Opened,
    Over,
    Refusal,
    Submit,
    TaskEnd,
    decode_from_master,
    encode_to_master,
    key_of,
)
from loopline_shared.rest.bodies import Problem
from loopline_shared.spec import JobSpec

_FOR_GOOD = {
    aiohttp.WSCloseCode.PROTOCOL_ERROR: "a message that it does not know",
    aiohttp.WSCloseCode.MESSAGE_TOO_BIG: "a message that is too long",
}
"""Reasons for which a master closes a link that would also close the next link."""


class Listener(Protocol):
    """Receives the events of one job. Its methods must not block."""

    count: int  # tasks that will end

    def submitted(self, job: int) -> None:
        """Handle the submission: the job is on the master's disk."""

    def ended(self, ends: list[TaskEnd]) -> None:
        """Handle the ends of some tasks."""

    def over(self, why: Over | Exception) -> None:
        """Handle the last event: the job has fewer results than tasks, was refused, or cannot be followed."""


@dataclass(eq=False, slots=True)
class _Submission:
    """A job that is not yet answered."""

    spec: JobSpec
    listener: Listener
    is_patient: bool = False  # it may be answered with its first results
    key: str = ""  # set when it was sent
    patience: Backoff | None = None  # set when the master asked to try again


@dataclass(eq=False, slots=True)
class _Followed:
    """A job whose results are awaited, and the last result that came."""

    listener: Listener
    cursor: str = ""
    seen: int = 0


class CallLink:
    """Link of one client. It runs in the loop in which it is made, and opens at the first use."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._name = ""
        self._numbers = 0
        self._unsent: list[_Submission] = []
        self._submissions: dict[int, _Submission] = {}  # unanswered, by number on this link
        self._followed: dict[int, _Followed] = {}
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._beside: CallLink | None = None  # a second link, for jobs that are followed on this one already

    def post(self, spec: JobSpec, listener: Listener) -> bool:
        """Submit a job at once, if there is an open link and nothing waits for it. False: it is for ``submit``.

        The listener may hear only with the first results that the job is on the master's disk.
        """
        if self._socket is None or self._background:
            return False
        with suppress(ConnectionError):  # the link is lost, which its reader will notice
            run_at_once(self._socket.send_bytes(encode_to_master(self._numbered(_Submission(spec, listener, True)))))
        return True

    async def submit(self, spec: JobSpec, listener: Listener) -> None:
        """Submit a job; the listener receives its events. Back once the job is sent, or waits for a link."""
        one = _Submission(spec, listener)
        self._open()
        if self._socket is None or self._background:  # what was said before is sent first
            self._unsent.append(one)
            self._send_unsent()
        else:
            await _send(self._socket, encode_to_master(self._numbered(one)))

    def follow(self, job: int, listener: Listener) -> None:
        """Follow a job from its first result on."""
        if job in self._followed:
            self._beside = self._beside or CallLink(self._client)
            self._beside.follow(job, listener)
            return
        self._followed[job] = _Followed(listener)
        self._open()
        self._say(Follow(job))

    def drop(self, job: int, listener: Listener) -> None:
        """Stop following a job for this listener."""
        if (followed := self._followed.get(job)) and followed.listener is listener:
            del self._followed[job]
            self._say(Drop(job))
        elif self._beside:
            self._beside.drop(job, listener)

    async def close(self) -> None:
        """Close the link."""
        if self._beside:
            await self._beside.close()
        if self._keeping:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping

    def _open(self) -> None:
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Keep a link open, with pauses while the master is away."""
        http = self._client.http
        patience = http.patience()
        try:
            while True:
                try:
                    async with http.socket("/calls") as socket:
                        await self._talk(socket, patience)
                    fault = UnavailableError(_hung_up(self._client.master), may_have_acted=False)
                except UnavailableError as away:
                    fault = away
                finally:
                    self._socket = None
                await patience.after(fault)
        except Exception as error:  # every listener must learn of it
            self._give_up(error)

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse, patience: Backoff) -> None:
        """Read messages until the link is lost; the time for which the master is away begins then."""
        try:
            await self._hear(socket, patience)
        finally:
            if self._socket is socket:
                patience.restart()

    async def _hear(self, socket: aiohttp.ClientWebSocketResponse, patience: Backoff) -> None:
        """Read messages. Raises LooplineError if the master refuses the link for good."""
        while (frame := await socket.receive()).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            try:
                message = decode_from_master(frame.data)
            except ProtocolError as error:
                hint = "is the address a Loopline master of this version?"
                raise LooplineError("unexpected_answer", str(error), hint) from None
            patience.restart()
            if isinstance(message, Opened):
                self._begin(socket, message.link)
            else:
                self._handle(message)
        if frame.type is aiohttp.WSMsgType.CLOSE and frame.data in _FOR_GOOD:
            why = f"{self._client.master} takes no more of this: {frame.extra or _FOR_GOOD[frame.data]}"
            hint = "is it of this version, and its limits.max_body_bytes more than your calls need?"
            raise LooplineError("link_refused", why, hint)

    def _begin(self, socket: aiohttp.ClientWebSocketResponse, name: str) -> None:
        """Begin on a new link by repeating what the last one may have lost."""
        self._unsent = [*self._submissions.values(), *self._unsent]
        self._submissions = {}
        self._socket, self._name, self._numbers = socket, name, 0
        for job, followed in self._followed.items():
            self._say(Follow(job, followed.cursor))
        self._send_unsent()

    def _send_unsent(self) -> None:
        if self._socket is None:
            return
        unsent, self._unsent = self._unsent, []
        for one in unsent:
            self._say(self._numbered(one))

    def _numbered(self, one: _Submission) -> Submit:
        """Return the message of a submission, which is unanswered from now on."""
        self._numbers += 1
        self._submissions[self._numbers] = one
        message = Submit(self._numbers, one.spec, one.key, one.is_patient)
        one.key = one.key or key_of(self._name, self._numbers)
        return message

    def _say(self, message: Submit | Follow | Drop) -> None:
        """Send a message if the link is open; a new link sends everything again."""
        if self._socket is not None:
            sending = asyncio.create_task(_send(self._socket, encode_to_master(message)))
            self._background.add(sending)
            sending.add_done_callback(self._background.discard)

    def _handle(self, message: JobAccepted | Refusal | Ends | Over) -> None:
        if isinstance(message, Ends):
            self._handle_ends(message)
        elif isinstance(message, Over):
            if followed := self._followed.pop(message.job, None):
                followed.listener.over(message)
        elif isinstance(message, JobAccepted):
            self._handle_accepted(message.number, message.job)
        elif one := self._submissions.pop(message.number, None):
            self._refused(one, message)

    def _handle_accepted(self, number: int, job: int) -> None:
        if one := self._submissions.pop(number, None):
            self._followed[job] = _Followed(one.listener)
            one.listener.submitted(job)

    def _refused(self, one: _Submission, refusal: Refusal) -> None:
        error = _error_of(refusal)
        if refusal.status not in COME_AGAIN:
            one.listener.over(error)
            return
        waiting = asyncio.create_task(self._try_again(one, error))
        self._background.add(waiting)
        waiting.add_done_callback(self._background.discard)

    async def _try_again(self, one: _Submission, error: LooplineError) -> None:
        one.patience = one.patience or self._client.http.patience()
        try:
            await one.patience.after(UnavailableError(error, may_have_acted=False))
        except LooplineError as final:
            one.listener.over(final)
            return
        self._unsent.append(one)
        self._open()
        self._send_unsent()

    def _handle_ends(self, message: Ends) -> None:
        if message.accepted:
            self._handle_accepted(message.accepted, message.job)
        followed = self._followed.get(message.job)
        if followed is None:
            return
        followed.cursor = message.cursor
        followed.seen += len(message.ends)
        if message.over or followed.seen >= followed.listener.count:
            del self._followed[message.job]
        followed.listener.ended(message.ends)
        if message.over and followed.seen < followed.listener.count:
            followed.listener.over(Over(message.job, message.over))

    def _give_up(self, error: Exception) -> None:
        """Report the error to every listener. The link can be opened again for later jobs."""
        left: list[_Submission | _Followed] = [*self._submissions.values(), *self._unsent, *self._followed.values()]
        self._submissions, self._unsent, self._followed = {}, [], {}
        for one in left:
            one.listener.over(error)


async def _send(socket: aiohttp.ClientWebSocketResponse, frame: bytes) -> None:
    with suppress(ConnectionError):  # the link is lost, which its reader will notice
        await socket.send_bytes(frame)


def _error_of(refusal: Refusal) -> LooplineError:
    told = {"detail": refusal.message, "code": refusal.code, "hint": refusal.hint, "errors": refusal.errors}
    return problem_error(Problem(title="", status=refusal.status, **told))


def _hung_up(master: str) -> LooplineError:
    return LooplineError("unreachable", f"{master} has hung up", status=503)
