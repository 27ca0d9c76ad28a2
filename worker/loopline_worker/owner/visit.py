"""One request to the owner's page and its answer; the connection is closed behind it. The protocol is h11's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import h11

_MOST_BYTES = 4096
"""Of what is asked."""


@dataclass(frozen=True, slots=True)
class Question:
    method: str
    path: str
    headers: Mapping[str, str]  # by names in lower case; none that is there twice
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str = ""
    kind: str = "text/plain"
    headers: Mapping[str, str] | None = None


class Visit(asyncio.Protocol):
    def __init__(self, answer: Callable[[Question], Answer], visits: dict[Visit, None]) -> None:
        """``visits``: those that are open, the oldest first."""
        self._answer = answer
        self._visits = visits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * _MOST_BYTES)
        self._request: h11.Request | None = None
        self._body = b""
        self._is_answered = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._visits[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self._visits.pop(self, None)

    def end(self) -> None:
        if self._transport:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        try:
            self._http.receive_data(data)
            self._go_on()
        except h11.RemoteProtocolError as error:
            self._say(Answer(error.error_status_hint, "not understood\n"))

    def _go_on(self) -> None:
        while not self._is_answered and (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > _MOST_BYTES:
                    self._say(Answer(413, "too much\n"))
            elif isinstance(event, h11.EndOfMessage):
                self._say(self._answer(self._question()))

    def _question(self) -> Question:
        assert self._request
        headers: dict[str, str] = {}
        for name, value in self._request.headers:
            headers[name.decode()] = value.decode("latin-1") if name.decode() not in headers else "\0"
        path = self._request.target.decode("latin-1").partition("?")[0]
        return Question(self._request.method.decode(), path, headers, self._body)

    def _say(self, answer: Answer) -> None:
        assert self._transport
        self._is_answered = True
        body = answer.body.encode()
        headers = {
            **(answer.headers or {}),
            "Content-Type": f"{answer.kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._transport.write(self._http.send(h11.Response(status_code=answer.status, headers=fields)) or b"")
        if self._request is None or self._request.method != b"HEAD":
            self._transport.write(self._http.send(h11.Data(data=body)) or b"")
        self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
        self._transport.close()
