"""When Reports are sent: at once if none is unanswered, otherwise after the answer or a timeout."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loopline_shared.model import Facts, Load
from loopline_shared.protocol import link_session
from loopline_shared.protocol.link_session import MasterSession, WorkerSession
from loopline_shared.protocol.worker_link import Assign, Read, Welcome, Wrote
from loopline_worker.link import link as link_module
from loopline_worker.link.link import Conversation
from loopline_worker.link.websocket import LostError
from tests.worker.bench import until

FACTS = Facts("linux", "x86_64", "3.11.7", "0", "cpu", cpus=1, memory_bytes=1, slots=1)


class Socket:
    """A socket to a master that sends no requests."""

    is_over = False
    is_writable = True

    def __init__(self) -> None:
        self.master = MasterSession()
        self.reports = 0
        self.ending: BaseException | None = None
        self.on_frame: Any = None
        self.on_writable: Any = None

    def send(self, frame: bytes) -> None:
        message = self.master.receive(frame)
        self.reports += message is not None and message.kind == "report"

    async def until(self, done: asyncio.Future[Any]) -> None:
        self.on_frame(link_session.encode(Welcome(3600, 3600)))

    def end(self, error: BaseException) -> None:
        self.ending = error

    def answers(self, seq: int, seen: int) -> None:
        self.on_frame(link_session.encode(Assign(seq, seen)))


class ConversationListener:
    has_news = True
    is_busy = False

    def __init__(self) -> None:
        self.heard: list[Assign] = []

    async def ready(self, welcome: Welcome) -> None: ...
    def new_session(self) -> WorkerSession:
        return WorkerSession("w1", "boot", FACTS)

    def assigned(self, assign: Assign, frame: bytes) -> None:
        self.heard.append(assign)
        assert link_session.decode_from_master(frame) == assign

    def report(self, session: WorkerSession) -> bytes:
        return session.report((), (), Load(1))[1]

    async def wrote(self, read: Read) -> Wrote:
        raise AssertionError


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "ANSWER_WITHIN_S", 3600)
    monkeypatch.setattr(link_module, "REPORT_WITHIN_S", 0)


@pytest.fixture
async def socket() -> Socket:
    return Socket()


@pytest.fixture
async def listener() -> ConversationListener:
    return ConversationListener()


@pytest.fixture
async def conversation(socket: Socket, listener: ConversationListener) -> AsyncIterator[Conversation]:
    conversation = Conversation(socket, listener, "http://master")  # type: ignore[arg-type]
    await conversation.open()
    conversation.begin()
    socket.answers(1, 1)
    yield conversation
    conversation.end()


async def rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_single_result_is_reported_in_the_next_loop_iteration(
    conversation: Conversation, socket: Socket
) -> None:
    conversation.speak()
    await asyncio.sleep(0)
    assert socket.reports == 2


async def test_report_is_sent_at_once_if_the_last_one_was_answered(
    conversation: Conversation, socket: Socket
) -> None:
    conversation.speak_now()
    assert socket.reports == 2
    conversation.speak_now()
    assert socket.reports == 2
    socket.answers(2, 2)
    assert socket.reports == 3


async def test_results_during_an_unanswered_report_are_sent_together(
    conversation: Conversation, socket: Socket
) -> None:
    conversation.speak()
    await rounds()
    for _ in range(3):
        conversation.speak()
        await rounds()
    assert socket.reports == 2
    socket.answers(2, 1)  # answers the previous Report
    assert socket.reports == 2
    socket.answers(3, 2)
    assert socket.reports == 3
    socket.answers(4, 3)
    await rounds()
    assert socket.reports == 3, "no further news to report"


async def test_wait_for_an_answer_is_limited(
    conversation: Conversation, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "ANSWER_WITHIN_S", 0.02)
    conversation.speak()
    await rounds()
    conversation.speak()
    await until(lambda: socket.reports == 3)


async def test_no_report_is_queued_on_a_blocked_connection(conversation: Conversation, socket: Socket) -> None:
    socket.is_writable = False
    conversation.speak()
    await rounds()
    assert socket.reports == 1
    socket.is_writable = True
    socket.on_writable()
    assert socket.reports == 2


async def test_start_of_an_attempt_is_reported_soon(conversation: Conversation, socket: Socket) -> None:
    conversation.speak_soon()
    await until(lambda: socket.reports == 2)


async def test_reports_continue_until_a_silent_link_is_closed(
    conversation: Conversation, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation.end()
    socket.ending, socket.reports = None, 0
    conversation._report_every_s, conversation._timers = 0.01, {}
    conversation.begin()
    await until(lambda: socket.reports > 2)
    assert not socket.ending
    conversation._timers.pop(conversation._mind_silence).cancel()
    conversation._patience_s, conversation.heard_at = 0.1, time.monotonic()
    conversation._mind_silence()
    await until(lambda: socket.ending)
    assert isinstance(socket.ending, LostError)
    assert "has been silent" in str(socket.ending)


async def test_error_in_a_report_ends_the_connection(conversation: Conversation, socket: Socket) -> None:
    conversation._listener.report = None  # type: ignore[assignment,method-assign]
    conversation.speak()
    await rounds()
    assert isinstance(socket.ending, TypeError)


async def test_results_are_collected_briefly_while_the_worker_is_busy(
    conversation: Conversation, socket: Socket, listener: ConversationListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "GATHER_S", 3600)
    listener.is_busy = True
    conversation.speak()
    await rounds()
    assert socket.reports == 1
    listener.is_busy = False
    conversation.speak()
    socket.answers(2, 1)
    assert socket.reports == 2
