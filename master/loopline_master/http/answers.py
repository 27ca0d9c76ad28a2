"""Answers to requests: tagged and compressed JSON, the media type that a client prefers, and the start of a stream.

With a tag (ETag) a client can ask whether the answer that it has is still valid: then it gets 304 instead.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

JSON = "application/json"
_LEVEL = 3  # takes a third of the time of gzip's default, for a tenth more bytes
_SHORTEST_ZIPPED = 1024
_LONGEST_ZIPPED_IN_PLACE = 2**15
"""Bytes that are compressed in less time than a thread hand-over takes."""


class Encoded:
    """A JSON answer, used once or several times: its tag and its compressed form are made once."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._zipping: asyncio.Future[bytes] | None = None

    @cached_property
    def tag(self) -> str:
        """The ETag: the same for the same bytes, compressed or not."""
        return f'W/"{blake2b(self.body, digest_size=12).hexdigest()}"'

    async def zipped(self) -> bytes:
        """Return the body compressed."""
        if self._zipping is None:
            if len(self.body) <= _LONGEST_ZIPPED_IN_PLACE:
                self._zipping = asyncio.get_running_loop().create_future()
                self._zipping.set_result(_zipped(self.body))
            else:
                self._zipping = asyncio.ensure_future(asyncio.to_thread(_zipped, self.body))
        return await asyncio.shield(self._zipping)


class Zipping:
    """The compressed form of a body that is sent a piece at a time."""

    def __init__(self) -> None:
        self._zip = zlib.compressobj(_LEVEL, wbits=16 + zlib.MAX_WBITS)

    def add(self, piece: bytes) -> bytes:
        """Return a piece compressed, so that its reader has all of it."""
        return self._zip.compress(piece) + self._zip.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._zip.flush()


async def json_answer(
    request: web.Request, answer: bytes | Encoded, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return an answer with this JSON body; answers to GET are tagged."""
    encoded = Encoded(answer) if isinstance(answer, bytes) else answer
    headers, body = {"Vary": "Accept-Encoding", **(headers or {})}, encoded.body
    if status == 200 and request.method in ("GET", "HEAD"):
        headers["ETag"] = encoded.tag
        if _has(request, encoded.tag):
            return web.Response(status=304, headers=headers)
    if len(body) >= _SHORTEST_ZIPPED and takes_gzip(request):
        headers["Content-Encoding"] = "gzip"
        body = await encoded.zipped()
    return web.Response(status=status, body=body, content_type=JSON, headers=headers)


def takes_gzip(request: web.Request) -> bool:
    """True if the client says that it can read gzip."""
    return "gzip" in request.headers.get("Accept-Encoding", "")


def preferred(request: web.Request, *media_types: str) -> str:
    """Return the first of the media types that the request names in Accept; the first of all if it names none."""
    accepted = {one.partition(";")[0].strip() for one in request.headers.get("Accept", "").split(",")}
    return next((one for one in media_types if one in accepted), media_types[0])


class StoredFile(web.FileResponse):
    """Answer with a stored file, or with a range of it."""

    def __init__(self, path: Path, headers: Mapping[str, str]) -> None:
        super().__init__(path, headers=headers)
        self._receiving: web.BaseRequest | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send all of it."""
        self._receiving = request
        try:
            return await super().prepare(request)
        finally:
            self._receiving = None

    async def _sendfile(
        self, request: web.BaseRequest, fobj: IO[Any], offset: int, count: int
    ) -> AbstractStreamWriter:
        """Send pieces of 256 KiB if they are encrypted: asyncio's sendfile would take a thread for each 16 KiB."""
        if request.transport is None or request.transport.get_extra_info("sslcontext") is None:
            return await super()._sendfile(request, fobj, offset, count)
        writer = await web.StreamResponse.prepare(self, request)
        assert writer is not None
        return await self._sendfile_fallback(writer, fobj, offset, count)

    def cut_off(self) -> None:
        """Break the connection if the file is still being sent, so that its receiver does not believe it complete."""
        if self._receiving and self._receiving.transport:
            self._receiving.transport.abort()


async def begin_stream(request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send the headers of a response of unknown length, which completes the answer to HEAD."""
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    return response


def _has(request: web.Request, tag: str) -> bool:
    """True if the client has the answer with this tag."""
    known = request.headers.get("If-None-Match", "")
    return known.strip() == "*" or tag in (one.strip() for one in known.split(","))


def _zipped(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)
