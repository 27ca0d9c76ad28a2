"""The link of a client that calls functions: jobs come in, results go out as they are committed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from secrets import token_hex

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import ValidationError

from loopline_master.admission.busy_time import BusyTime
from loopline_master.change_feed import PART, Cursor, Subscription, Subscriptions, starts_from_zero, written
from loopline_master.core.kernel.effects import Declined, Reply, Submitted
from loopline_master.core.kernel.entities import Attempt, Job, Task
from loopline_master.core.scheduler import Scheduler
from loopline_master.http.auth import READERS, USERS, AuditRecorder, Auth, Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.operations import InvalidRequest, Routes
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_master.store.queries.attempt_queries import why_failed
from loopline_master.submissions.submissions import Submissions
from loopline_master.timings import ANSWER_WITHIN_S, CLOSE_WITHIN_S, STILL_HERE_EVERY_S
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
from loopline_shared.spec import JobSpec

routes = Routes("calls")
_Subscription = Subscription[TaskEnd]

MOST_QUEUED_BYTES = 4 * 2**20
"""Results queued for a reader; beyond it, the rest is read from disk once the reader has caught up."""
MOST_SUBMISSIONS = 100
"""Unanswered submissions of one link; beyond it, the link is not read until one is answered."""
MOST_FOLLOWED = 100_000
_SUBMIT_ACTION = "submit_job"
"""Name of a submission in the audit log, the same as by REST."""
MOST_REASON_BYTES = 123  # of a WebSocket close frame
MOST_AT_ONCE_BYTES = 16 * 2**10
"""Longest frame that is written at once: a transport buffers four times as much before a writer has to wait."""


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
        audit: AuditRecorder,
    ) -> None:
        self.auth, self.submissions = auth, submissions
        self.store, self.subscriptions = store, subscriptions
        self.scheduler = scheduler  # read only
        self.busy_time, self.audit = busy_time, audit

    async def serve(self, request: web.Request, socket: web.WebSocketResponse, sender: str) -> None:
        """Serve one link until it is closed. The time that its messages cost is counted for ``sender``."""
        link = _ClientLink(self, request, socket, sender)
        with self.submissions.fresh_keys.link(link.name):
            await link.serve()


class _ClientLink:
    def __init__(self, of: ClientLinks, request: web.Request, socket: web.WebSocketResponse, sender: str) -> None:
        self._of, self._request, self._socket, self._sender = of, request, socket, sender
        self.name = token_hex(16)
        self._caller: Caller | None = None  # once it has submitted
        self._submissions = 0
        self._accepted: dict[int, tuple[int, float]] = {}  # unanswered, by job: number and time, oldest first
        self._alarm: asyncio.TimerHandle | None = None
        self._subscriptions: dict[int, _Subscription] = {}  # by job
        self._behind: dict[int, _Subscription] = {}  # by job; first the one that has been behind for longest
        self._outgoing: deque[tuple[bytes, bool]] = deque()  # frames, and True for answers to submissions
        self._queued_bytes = 0
        self._woken = asyncio.Event()
        self._is_open = True
        self._is_at_rest = False  # everything queued so far is sent
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
            self._subscriptions, self._is_open = {}, False
            if self._alarm:
                self._alarm.cancel()

    async def _receive_all(self, group: asyncio.TaskGroup) -> None:
        while (frame := await self._socket.receive()).type in (WSMsgType.BINARY, WSMsgType.TEXT):
            message = await self._read(frame.data)
            if isinstance(message, Follow | Submit) and len(self._subscriptions) >= MOST_FOLLOWED:
                raise ProtocolError(f"more than {MOST_FOLLOWED:,} jobs are followed on this link")
            if isinstance(message, Follow):
                self._follow(message)
            elif isinstance(message, Drop):
                self._close(message.job)
            else:
                await self._seats.acquire()
                if isinstance(message, Refusal):
                    self._put(message)
                elif not await self._is_posted(message):
                    group.create_task(self._submit(message))

    async def _read(self, frame: bytes | str) -> Submit | Follow | Drop | Refusal:
        """Return the message; a Refusal if it is an invalid submission. Raises ProtocolError for anything else."""
        try:
            await self._of.busy_time.rest(self._sender)
        except LooplineError as error:
            raise ProtocolError(error.message) from None
        begin = time.perf_counter()
        try:
            message = decode_from_client(frame)
        except ValidationError as error:
            self._of.busy_time.charge(self._sender, time.perf_counter() - begin)
            number = number_of(frame)
            if number is None:
                raise ProtocolError("not a message of a client that calls functions") from None
            self._count_submission(number)
            return _refusal(number, InvalidRequest("body", error, JobSpec))
        if isinstance(message, Submit):
            self._count_submission(message.number)
        return message

    def _count_submission(self, number: int) -> None:
        """Count a submission. Raises ProtocolError unless numbers ascend by one, since keys are made of them."""
        if number != self._submissions + 1:
            raise ProtocolError(f"submission {number} came after submission {self._submissions}")
        self._submissions = number

    # Submissions.

    async def _is_posted(self, submit: Submit) -> bool:
        """Post a submission, to be answered on the scheduler's reply. False if it has to wait for more, in a task."""
        if submit.again:
            return False
        try:
            caller, key = await self._submitter(), key_of(self.name, submit.number)
            action = self._of.audit.begin(caller, self._request, _SUBMIT_ACTION)
            return self._of.submissions.post(caller.name, submit.job, key, partial(self._replied, submit), action)
        except LooplineError as error:
            self._put(_refusal(submit.number, error))
            return True

    def _replied(self, submit: Submit, reply: asyncio.Future[Reply]) -> None:
        """Answer a submission that is on disk or was declined, unless the link is closed or the master is ending."""
        if not self._is_open:
            return
        if (error := reply.exception()) is not None:
            if isinstance(error, LooplineError):
                self._put(_refusal(submit.number, error))
        elif isinstance(answer := reply.result(), Declined):
            refused = LooplineError(answer.code, answer.message, answer.hint, answer.status)
            self._put(_refusal(submit.number, refused))
        elif isinstance(answer, Submitted):
            self._accept(submit, answer.job)

    async def _submit(self, submit: Submit) -> None:
        try:
            caller = await self._submitter()
            key = submit.again or key_of(self.name, submit.number)
            answer = await self._of.submissions.submit(
                caller.name,
                submit.job,
                key,
                on_its_link=not submit.again,
                action=self._of.audit.begin(caller, self._request, _SUBMIT_ACTION),
            )
            self._accept(submit, answer.id)
        except LooplineError as error:
            self._put(_refusal(submit.number, error))

    async def _submitter(self) -> Caller:
        """Return the submitting caller. Raises LooplineError if their token was revoked or they may not submit."""
        if self._caller is None or not self._of.auth.still_admits(self._caller, self._request.remote or ""):
            self._caller = await self._of.auth.admit(self._request, USERS)
        return self._caller

    def _accept(self, submit: Submit, job: int) -> None:
        """Answer a submission that is on disk, now or with its first results, and follow the job."""
        if submit.is_patient:
            self._accepted[job] = submit.number, asyncio.get_running_loop().time()
            self._set_alarm()
        else:
            self._answer_waiting()  # in the order of submissions
            self._put(JobAccepted(submit.number, job))
        self._open(job, is_live=starts_from_zero(self._of.scheduler.state, job))

    def _answer_waiting(self, before: float = math.inf) -> None:
        """Answer the submissions accepted before this time that wait for their first results."""
        while self._accepted and next(iter(self._accepted.values()))[1] <= before:
            job = next(iter(self._accepted))
            number, _ = self._accepted.pop(job)
            self._put(JobAccepted(number, job))

    def _set_alarm(self) -> None:
        """Set an alarm that answers the oldest waiting submission in time, unless one is set."""
        if self._alarm is None and self._accepted:
            _, at = next(iter(self._accepted.values()))
            self._alarm = asyncio.get_running_loop().call_at(at + ANSWER_WITHIN_S, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._answer_waiting(asyncio.get_running_loop().time() - ANSWER_WITHIN_S)
        self._set_alarm()

    # Following.

    def _follow(self, follow: Follow) -> None:
        at, _, number = follow.cursor.partition("@")
        cursor = (float(at), int(number)) if number else (0.0, 0)
        self._open(follow.job, cursor)

    def _open(self, job: int, cursor: Cursor = (0.0, 0), *, is_live: bool = False) -> None:
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
        number, _ = self._accepted.pop(of.job, (0, 0.0))
        if ends:
            return self._put(Ends(of.job, written(of.cursor), ends, over, accepted=number))
        if number:
            self._put(JobAccepted(number, of.job))
        return self._put(Over(of.job, over))

    def _fell_behind(self, subscription: _Subscription) -> None:
        self._behind[subscription.job] = subscription
        self._wake()

    # Sending.

    def _put(self, message: Opened | JobAccepted | Refusal | Ends | Over) -> bool:
        """Queue a message. Returns True if there is room for more."""
        is_answer = isinstance(message, JobAccepted | Refusal)
        if isinstance(message, Ends | Over):
            is_answer = isinstance(message, Ends) and message.accepted > 0
            if isinstance(message, Over) or message.over:
                self._close(message.job)
        frame = encode_to_client(message)
        if self._is_at_rest and len(frame) <= MOST_AT_ONCE_BYTES and self._is_sent(frame):
            if is_answer:
                self._seats.release()
            return len(frame) < MOST_QUEUED_BYTES
        self._outgoing.append((frame, is_answer))
        self._queued_bytes += len(frame)
        self._wake()
        return self._queued_bytes < MOST_QUEUED_BYTES

    def _is_sent(self, frame: bytes) -> bool:
        """Send a frame at once if none is queued before it. Errors are left to ``_send_all``."""
        transport = self._request.transport
        if transport is None or transport.get_write_buffer_size():
            return False
        with suppress(ConnectionError):
            _run(self._socket.send_bytes(frame))
            return True
        return False

    def _wake(self) -> None:
        self._is_at_rest = False
        self._woken.set()

    async def _send_all(self) -> None:
        while True:
            self._is_at_rest = not self._outgoing and not self._behind
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
        if self._subscriptions.get(job) is not subscription:  # closed since then
            return
        is_all = len(found) < PART and not subscription.is_stirred
        if found:
            subscription.send([end for end, _ in found], found[-1][1], state if is_all and is_over else None)
        elif is_all and is_over:
            self._send_ends(subscription, [], state)
        if not is_all:
            self._behind[job] = subscription
        subscription.is_live = is_all


def _run(work: Coroutine[object, None, None]) -> None:
    """Run a coroutine that never waits."""
    with suppress(StopIteration):
        work.send(None)


def _end_of(_job: Job | None, task: Task, attempt: Attempt) -> TaskEnd:
    reason = task.verdict or attempt.reason or why_failed(attempt.state, attempt.exit_code)
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
