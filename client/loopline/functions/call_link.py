"""The link to the master of a client that calls functions: jobs go up it, results come down as they are committed.

Whoever submits or follows a job gives a Listener. Should the link be lost, another one is opened: what was not
answered is sent again, and each job is followed on from the last result that came.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import aiohttp

from loopline.http import COME_AGAIN, AwayError, Patience, problem_error
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

if TYPE_CHECKING:
    from loopline.client import AsyncClient


_FOR_GOOD = {
    aiohttp.WSCloseCode.PROTOCOL_ERROR: "a message that it does not know",
    aiohttp.WSCloseCode.MESSAGE_TOO_BIG: "a message that is too long",
}
"""Why a master closes a link of which another one would come to the same end."""


class Listener(Protocol):
    """Hears of one job. None of it waits."""

    count: int  # tasks that will end

    def submitted(self, job: int) -> None:
        """It is on the master's disk."""

    def ended(self, ends: list[TaskEnd]) -> None: ...

    def over(self, why: Over | Exception) -> None:
        """The last that is heard: it has ended with fewer results, was declined, or cannot be followed."""


@dataclass(eq=False, slots=True)
class _Submission:
    spec: JobSpec
    listener: Listener
    key: str = ""  # once it was sent
    patience: Patience | None = None  # once the master said to come again


@dataclass(eq=False, slots=True)
class _Followed:
    listener: Listener
    cursor: str = ""
    seen: int = 0


class CallLink:
    """Runs in the loop in which it is made; opens at the first use."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._name = ""
        self._numbers = 0
        self._unsent: list[_Submission] = []
        self._submissions: dict[int, _Submission] = {}  # unanswered, by number on this link
        self._followed: dict[int, _Followed] = {}
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._beside: CallLink | None = None  # for jobs that somebody follows here already

    def submit(self, spec: JobSpec, listener: Listener) -> None:
        """The listener hears of what comes of it."""
        self._unsent.append(_Submission(spec, listener))
        self._open()
        self._send_unsent()

    def follow(self, job: int, listener: Listener) -> None:
        """From its first result on."""
        if job in self._followed:
            self._beside = self._beside or CallLink(self._client)
            self._beside.follow(job, listener)
            return
        self._followed[job] = _Followed(listener)
        self._open()
        self._say(Follow(job))

    def drop(self, job: int, listener: Listener) -> None:
        """It wants to hear of it no more."""
        if (followed := self._followed.get(job)) and followed.listener is listener:
            del self._followed[job]
            self._say(Drop(job))
        elif self._beside:
            self._beside.drop(job, listener)

    async def close(self) -> None:
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
        http = self._client._http
        patience = http.patience()
        try:
            while True:
                try:
                    async with http.socket("/calls") as socket:
                        await self._talk(socket, patience)
                    fault = AwayError(_hung_up(self._client.master), may_have_acted=False)
                except AwayError as away:
                    fault = away
                finally:
                    self._socket = None
                await patience.after(fault)
        except Exception as error:  # whoever waits must hear of it
            self._give_up(error)

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse, patience: Patience) -> None:
        """Until the link is lost: the master is away from then on, however long nothing was to be said before."""
        try:
            await self._hear(socket, patience)
        finally:
            if self._socket is socket:
                patience.restart()

    async def _hear(self, socket: aiohttp.ClientWebSocketResponse, patience: Patience) -> None:
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
                self._heed(message)
        if frame.type is aiohttp.WSMsgType.CLOSE and frame.data in _FOR_GOOD:
            why = f"{self._client.master} takes no more of this: {frame.extra or _FOR_GOOD[frame.data]}"
            hint = "is it of this version, and its limits.max_body_bytes more than your calls need?"
            raise LooplineError("link_refused", why, hint)

    def _begin(self, socket: aiohttp.ClientWebSocketResponse, name: str) -> None:
        """A new link: all that the last one may have lost is said again."""
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
            self._numbers += 1
            self._submissions[self._numbers] = one
            self._say(Submit(self._numbers, one.spec, again=one.key))
            one.key = one.key or key_of(self._name, self._numbers)

    def _say(self, message: Submit | Follow | Drop) -> None:
        """If the link is open: a new one says it all."""
        if self._socket is not None:
            sending = asyncio.create_task(_send(self._socket, encode_to_master(message)))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    def _heed(self, message: JobAccepted | Refusal | Ends | Over) -> None:
        if isinstance(message, Ends):
            self._take(message)
        elif isinstance(message, Over):
            if followed := self._followed.pop(message.job, None):
                followed.listener.over(message)
        elif one := self._submissions.pop(message.number, None):
            if isinstance(message, JobAccepted):
                self._followed[message.job] = _Followed(one.listener)
                one.listener.submitted(message.job)
            else:
                self._refused(one, message)

    def _refused(self, one: _Submission, refusal: Refusal) -> None:
        error = _error_of(refusal)
        if refusal.status not in COME_AGAIN:
            one.listener.over(error)
            return
        waiting = asyncio.create_task(self._try_again(one, error))
        self._sending.add(waiting)
        waiting.add_done_callback(self._sending.discard)

    async def _try_again(self, one: _Submission, error: LooplineError) -> None:
        one.patience = one.patience or self._client._http.patience()
        try:
            await one.patience.after(AwayError(error, may_have_acted=False))
        except LooplineError as final:
            one.listener.over(final)
            return
        self._unsent.append(one)
        self._open()
        self._send_unsent()

    def _take(self, message: Ends) -> None:
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
        """It can be opened again, for those who still come."""
        left: list[_Submission | _Followed] = [*self._submissions.values(), *self._unsent, *self._followed.values()]
        self._submissions, self._unsent, self._followed = {}, [], {}
        for one in left:
            one.listener.over(error)


async def _send(socket: aiohttp.ClientWebSocketResponse, frame: bytes) -> None:
    with suppress(ConnectionError):  # it is lost, which whoever listens on it will see
        await socket.send_bytes(frame)


def _error_of(refusal: Refusal) -> LooplineError:
    told = {"detail": refusal.message, "code": refusal.code, "hint": refusal.hint, "errors": refusal.errors}
    return problem_error(Problem(title="", status=refusal.status, **told))


def _hung_up(master: str) -> LooplineError:
    return LooplineError("unreachable", f"{master} has hung up", status=503)
