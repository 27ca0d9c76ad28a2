"""The link of a client that calls functions: jobs come in, results go out as they are committed."""

from __future__ import annotations

import asyncio
from collections import deque
from secrets import token_hex

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import ValidationError

from loopline_master.busy_time import BusyTime
from loopline_master.change_feed import PART, Cursor, Subscription, Subscriptions, is_all_to_come, written
from loopline_master.core.entities import Attempt, Job, Task
from loopline_master.core.scheduler import Scheduler
from loopline_master.http.auth import READERS, USERS, Auth, Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.operations import InvalidRequest, Routes
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_master.submissions.submissions import Submissions
from loopline_master.timings import CLOSE_WITHIN_S, STILL_HERE_EVERY_S
from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.model import JobState
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
    decode_from_client,
    encode_to_client,
    key_of,
    number_of,
)

routes = Routes("calls")
_Subscription = Subscription[TaskEnd]

MOST_QUEUED_BYTES = 4 * 2**20
"""Results queued for a reader; with more, the rest is read from disk once the reader has caught up."""
MOST_SUBMISSIONS = 100
"""Submissions of one link that are unanswered; with more, the link is not read from until one is answered."""
MOST_FOLLOWED = 100_000
MOST_REASON_BYTES = 123  # of a WebSocket close frame


@routes("GET /calls", READERS, is_documented=False)
async def open_calls(
    calls: ClientLinks, limits: Limits, streams: OpenStreams, caller: Caller, request: web.Request
) -> web.WebSocketResponse:
    """Open the WebSocket of a client that calls functions; protocol/client_link.py defines its messages."""
    sender = caller.token or request.remote or ""
    await calls.busy_time.rest(sender)
    socket = web.WebSocketResponse(
        compress=False,
        heartbeat=STILL_HERE_EVERY_S,
        max_msg_size=limits.max_body_bytes,
        timeout=CLOSE_WITHIN_S,
    )
    with streams.seat(caller):
        await socket.prepare(request)
        await calls.serve(request, socket, sender)
    return socket


class ClientLinks:
    """Serves the links of clients with the parts of the master that they need."""

    def __init__(
        self,
        auth: Auth,
        submissions: Submissions,
        *,
        store: Store,
        subscriptions: Subscriptions,
        scheduler: Scheduler,
        busy_time: BusyTime,
    ) -> None:
        self.auth, self.submissions = auth, submissions
        self.store, self.subscriptions = store, subscriptions
        self.scheduler = scheduler  # read only
        self.busy_time = busy_time

    async def serve(self, request: web.Request, socket: web.WebSocketResponse, sender: str) -> None:
        """Serve one link until it is closed; ``sender`` answers for the time that its messages cost."""
        link = _ClientLink(self, request, socket, sender)
        with self.submissions.fresh_keys.link(link.name):
            await link.serve()


class _ClientLink:
    def __init__(self, of: ClientLinks, request: web.Request, socket: web.WebSocketResponse, sender: str) -> None:
        self._of, self._request, self._socket, self._sender = of, request, socket, sender
        self.name = token_hex(16)
        self._submissions = 0
        self._subscriptions: dict[int, _Subscription] = {}  # by job
        self._behind: dict[int, _Subscription] = {}  # by job, the longest behind first
        self._outgoing: deque[tuple[bytes, bool]] = deque()  # frames, and which of them answer a submission
        self._queued_bytes = 0
        self._woken = asyncio.Event()
        self._seats = asyncio.Semaphore(MOST_SUBMISSIONS)

    async def serve(self) -> None:
        """Serve until either side closes the link, or the client breaks the protocol."""
        self._put(Opened(self.name))
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send_all())
                await self._receive_all(group)
                sending.cancel()
        except* ConnectionError:
            pass
        except* ProtocolError as errors:
            reason = str(errors.exceptions[0]).encode()[:MOST_REASON_BYTES]
            await self._socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=reason)
        finally:
            for subscription in self._subscriptions.values():
                self._of.subscriptions.close(subscription)

    async def _receive_all(self, group: asyncio.TaskGroup) -> None:
        while (frame := await self._socket.receive()).type in (WSMsgType.BINARY, WSMsgType.TEXT):
            message = await self._read(frame.data)
            if isinstance(message, Follow):
                self._follow(message)
            elif isinstance(message, Drop):
                self._close(message.job)
            else:
                await self._seats.acquire()
                if isinstance(message, Submit):
                    group.create_task(self._submit(message))
                else:
                    self._put(message)

    async def _read(self, frame: bytes | str) -> Submit | Follow | Drop | Refusal:
        """Return the message; a Refusal if it is an invalid submission. Raises ProtocolError for anything else."""
        try:
            await self._of.busy_time.rest(self._sender)
            with self._of.busy_time.charged(self._sender):
                message = decode_from_client(frame)
        except LooplineError as error:
            raise ProtocolError(error.message) from None
        except ValidationError as error:
            number = number_of(frame)
            if number is None:
                raise ProtocolError("this is no message of a client that calls functions") from None
            self._count_submission(number)
            return _refusal(number, InvalidRequest("body", error))
        if isinstance(message, Submit):
            self._count_submission(message.number)
        return message

    def _count_submission(self, number: int) -> None:
        """Count a submission. Raises ProtocolError unless numbers ascend by one: keys made of them must be new."""
        if number != self._submissions + 1:
            raise ProtocolError(f"submission {number} came after submission {self._submissions}")
        self._submissions = number

    # Submissions.

    async def _submit(self, submit: Submit) -> None:
        try:
            await self._submit_and_follow(submit)
        except LooplineError as error:
            self._put(_refusal(submit.number, error))

    async def _submit_and_follow(self, submit: Submit) -> None:
        """Submit the job; answer once it is on disk, and send its results from the first one on."""
        caller = await self._of.auth.admit(self._request, USERS)  # as of now: a token may have been revoked
        key = submit.again or key_of(self.name, submit.number)
        answer = await self._of.submissions.submit(caller.name, submit.job, key, on_its_link=not submit.again)
        self._put(JobAccepted(submit.number, answer.id))
        self._open(answer.id, is_live=is_all_to_come(self._of.scheduler.state, answer.id))

    # Following.

    def _follow(self, follow: Follow) -> None:
        at, _, number = follow.cursor.partition("@")
        cursor = (float(at), int(number)) if number else (0.0, 0)
        self._open(follow.job, cursor)

    def _open(self, job: int, cursor: Cursor = (0.0, 0), *, is_live: bool = False) -> None:
        if len(self._subscriptions) >= MOST_FOLLOWED:
            raise ProtocolError(f"more than {MOST_FOLLOWED:,} jobs are followed on this link")
        self._close(job)
        subscription = self._subscriptions[job] = Subscription(
            job=job, put=self._send_ends, on_behind=self._fell_behind, end_of=_end_of, cursor=cursor, is_live=is_live
        )
        self._of.subscriptions.open(subscription)
        if not subscription.is_live:
            self._fell_behind(subscription)

    def _close(self, job: int) -> None:
        self._behind.pop(job, None)
        if subscription := self._subscriptions.pop(job, None):
            self._of.subscriptions.close(subscription)

    def _send_ends(self, of: _Subscription, ends: list[TaskEnd], over: JobState | None) -> bool:
        return self._put(Ends(of.job, written(of.cursor), ends, over) if ends else Over(of.job, over))

    def _fell_behind(self, subscription: _Subscription) -> None:
        self._behind[subscription.job] = subscription
        self._woken.set()

    # Sending.

    def _put(self, message: Opened | JobAccepted | Refusal | Ends | Over) -> bool:
        """Queue a message. Returns True if there is room for more."""
        if isinstance(message, Over) or (isinstance(message, Ends) and message.over):
            self._close(message.job)
        frame = encode_to_client(message)
        self._outgoing.append((frame, isinstance(message, JobAccepted | Refusal)))
        self._queued_bytes += len(frame)
        self._woken.set()
        return self._queued_bytes < MOST_QUEUED_BYTES

    async def _send_all(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._outgoing or self._behind:
                while self._outgoing:
                    frame, is_answer = self._outgoing.popleft()
                    self._queued_bytes -= len(frame)
                    await self._socket.send_bytes(frame)
                    if is_answer:
                        self._seats.release()
                if self._behind:
                    await self._read_on(self._behind.pop(next(iter(self._behind))))

    async def _read_on(self, subscription: _Subscription) -> None:
        """Read a page from disk; the subscription is live again once nothing is left unread."""
        job, subscription.is_stirred = subscription.job, False
        state, is_over, found = await self._of.store.results.ends(job, subscription.cursor, PART)
        if self._subscriptions.get(job) is not subscription:  # closed meanwhile
            return
        is_all = len(found) < PART and not subscription.is_stirred
        if found:
            subscription.send([end for end, _ in found], found[-1][1], state if is_all and is_over else None)
        elif is_all and is_over:
            self._put(Over(job, state))
        if not is_all:
            self._behind[job] = subscription
        subscription.is_live = is_all


def _end_of(_job: Job | None, task: Task, attempt: Attempt) -> TaskEnd:
    reason = task.verdict or attempt.reason
    return TaskEnd(
        number=task.number,
        state=task.state,
        worker=attempt.worker,
        exit_code=attempt.exit_code,
        reason=reason,
        value=attempt.value,
    )


def _refusal(number: int, error: LooplineError) -> Refusal:
    errors = error.errors if isinstance(error, InvalidRequest) else []
    return Refusal(
        number=number, status=error.status, code=error.code, message=error.message, hint=error.hint, errors=errors
    )
