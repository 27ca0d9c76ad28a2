"""The link for submitting calls: its messages keep their order."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from loopline.functions.call_link import CallLink
from loopline_shared.model import JobState, TaskState
from loopline_shared.protocol.client_link import Ends, Submit, TaskEnd, decode_from_client
from loopline_shared.spec import JobSpec


class Socket:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str]] = []

    async def send_bytes(self, frame: bytes) -> None:
        message = decode_from_client(frame)
        assert isinstance(message, Submit)
        self.sent.append((message.number, message.job.name))


async def test_earlier_messages_are_sent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is submitted just after a new link began, before the link has sent its waiting messages."""
    monkeypatch.setattr(CallLink, "_open", lambda link: None)
    link, socket, listener = CallLink(cast("Any", None)), Socket(), cast("Any", None)
    await link.submit(JobSpec(name="waited", command=["true"]), listener)
    link._begin(cast("Any", socket), "l1")
    await link.submit(JobSpec(name="just after", command=["true"]), listener)
    while link._background:
        await asyncio.sleep(0)
    await link.submit(JobSpec(name="later", command=["true"]), listener)
    assert socket.sent == [(1, "waited"), (2, "just after"), (3, "later")]


class Heard:
    """Keeps what is said of a job."""

    count = 1

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def submitted(self, job: int) -> None:
        self.heard.append(("submitted", job))

    def ended(self, ends: list[TaskEnd]) -> None:
        self.heard.append(("ended", ends))

    def over(self, why: object) -> None:
        self.heard.append(("over", why))


async def test_an_end_that_answers_a_submission_is_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallLink, "_open", lambda link: None)
    link, socket, listener = CallLink(cast("Any", None)), Socket(), Heard()
    link._begin(cast("Any", socket), "l1")
    assert link.post(JobSpec(command=["true"]), listener)
    end = TaskEnd(1, TaskState.SUCCEEDED, "w1", exit_code=0, reason="", value=None)
    link._handle(Ends(7, "", [end], JobState.SUCCEEDED, accepted=1))
    assert listener.heard == [("submitted", 7), ("ended", [end])]
    assert not link._submissions
    assert not link._followed
