"""A request to the owner's page and its response, then the connection is closed. The protocol is h11's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import h11

_MOST_BYTES = 4096
"""Most bytes of a request's body."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request as HTTP has it."""

    method: str
    path: str
    headers: Mapping[str, str]  # by names in lower case; a header that occurs twice has no usable value
    body: bytes


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A response as HTTP has it."""

    status: int
    body: str = ""
    kind: str = "text/plain"
    headers: Mapping[str, str] | None = None


class Visit(asyncio.Protocol):
    """Connection for one request. ``visits``: all open ones, the oldest first."""

    def __init__(self, respond: Callable[[PageRequest], PageResponse], visits: dict[Visit, None]) -> None:
        self._respond = respond
        self._visits = visits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * _MOST_BYTES)
        self._request: h11.Request | None = None
        self._body = b""
        self._has_responded = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._visits[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self._visits.pop(self, None)

    def end(self) -> None:
        """Close the connection at once."""
        if self._transport:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Respond once the request is complete, or invalid."""
        if self._has_responded:
            return
        try:
            self._http.receive_data(data)
            self._handle_events()
        except h11.RemoteProtocolError as error:
            self._send(PageResponse(error.error_status_hint, "not understood\n"))

    def _handle_events(self) -> None:
        while not self._has_responded and (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > _MOST_BYTES:
                    self._send(PageResponse(413, "too much\n"))
            elif isinstance(event, h11.EndOfMessage):
                self._send(self._respond(self._parsed()))

    def _parsed(self) -> PageRequest:
        assert self._request
        headers: dict[str, str] = {}
        for name, value in self._request.headers:
            headers[name.decode()] = value.decode("latin-1") if name.decode() not in headers else "\0"
        path = self._request.target.decode("latin-1").partition("?")[0]
        return PageRequest(self._request.method.decode(), path, headers, self._body)

    def _send(self, response: PageResponse) -> None:
        assert self._transport
        self._has_responded = True
        body = response.body.encode()
        headers = {
            **(response.headers or {}),
            "Content-Type": f"{response.kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._transport.write(self._http.send(h11.Response(status_code=response.status, headers=fields)) or b"")
        if self._request is None or self._request.method != b"HEAD":
            self._transport.write(self._http.send(h11.Data(data=body)) or b"")
        self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
        self._transport.close()
