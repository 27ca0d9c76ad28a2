"""Requests to the master about a file that comes in pieces: size, list, and the pieces themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

from loopline_shared.pieces import PieceLayout, PieceList
from loopline_worker.files.receiving import GONE, GoneError, NetworkError, connection_to, network
from loopline_worker.link.http_client import HttpClient
from loopline_worker.peers.upstreams import MasterUpstream

_CONNECT_WITHIN_S, _SILENCE_S = 10.0, 30.0
_MAX_LIST_BYTES = 2**20


class MasterFiles:
    """Requests to the master, each in the thread that makes it. Raises NetworkError, GoneError or LooplineError."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def size_of(self, sha256: str) -> int:
        """Return the size of a file."""
        with network(), closing(self._connection()) as connection:
            answer = self._ask(connection, "HEAD", f"files/{sha256}")
            return int(answer.getheader("Content-Length", "0"))

    def pieces_of(self, sha256: str) -> PieceList:
        """Return the list of a file's pieces."""
        with network(), closing(self._connection()) as connection:
            content = self._ask(connection, "GET", f"files/{sha256}/pieces").read(_MAX_LIST_BYTES)
        try:
            return PieceList.decode(content)
        except ValueError as error:
            raise NetworkError(str(error)) from None

    def open_at(self, sha256: str, layout: PieceLayout) -> Callable[[int], MasterUpstream]:
        """Return what connects to the master as the source of all pieces from a number on."""
        return partial(self._open, f"files/{sha256}", layout)

    def open_probe(self, layout: PieceLayout) -> MasterUpstream:
        """Connect to the master as the source of a probe, whose content is of no use."""
        return self._open("network/probe", layout, 0)

    def _open(self, path: str, layout: PieceLayout, first: int) -> MasterUpstream:
        path = urlsplit(self._http.address(path)).path
        with network():
            return MasterUpstream(self._connection(), path, self._http.headers(), layout, first)

    def _ask(self, connection: HTTPConnection, method: str, path: str) -> HTTPResponse:
        address = urlsplit(self._http.address(path)).path
        connection.request(method, address, headers=self._http.headers() | {"Connection": "close"})
        answer = connection.getresponse()
        if answer.status in GONE:
            raise GoneError
        if answer.status != 200:
            raise NetworkError(f"the master answered HTTP {answer.status}")
        return answer

    def _connection(self) -> HTTPConnection:
        connection = connection_to(self._http.master, self._http.tls())
        connection.timeout = _CONNECT_WITHIN_S
        connection.connect()
        connection.sock.settimeout(_SILENCE_S)
        return connection
