"""Transfers past the master, between this computer and the bucket that holds the grid's files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from loopline.http import UnavailableError, authorities
from loopline.rest_client import RestClient
from loopline_shared.errors import LooplineError
from loopline_shared.rest.direct import ELSEWHERE, TAKEN, DirectUpload

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_MAY_CHANGE = (403, 408, 429)
"""Statuses below 500 after which another try, with a new address, may succeed."""


@asynccontextmanager
async def opened(
    client: RestClient, sha256: str, allow: Container[int] = (), headers: Mapping[str, str] | None = None
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Open a file: at the master, or where it says that it is. Raises UnavailableError, or the master's own error."""
    headers = dict(headers or {})
    asked = headers | client.http.direct.asked()
    async with client.http.open(
        "GET", f"/files/{sha256}", allow=allow, headers=asked, allow_redirects=False
    ) as answer:
        if answer.status != ELSEWHERE:
            yield answer
            return
    async with _asked(client, "GET", answer.headers["Location"], headers=headers) as answer:
        if answer.status >= 300 and answer.status not in allow:
            raise _unavailable(f"answered HTTP {answer.status}")
        yield answer


async def send(
    client: RestClient, place: DirectUpload, size_bytes: int, content: AsyncGenerator[bytes, None]
) -> None:
    """Send a file to its place. Raises UnavailableError: it may be there all the same, as the master can tell."""
    headers = {**place.headers, "Content-Length": str(size_bytes)}
    async with _asked(client, "PUT", place.url, data=content, headers=headers) as answer:
        if answer.status in TAKEN:
            return
        if answer.status < 500 and answer.status not in _MAY_CHANGE:  # the master will say why
            client.http.direct.avoid()
        raise _unavailable(f"answered HTTP {answer.status}")


@asynccontextmanager
async def _asked(client: RestClient, method: str, url: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    """Make one request to the bucket, with none of the headers that are for the master."""
    tls = await asyncio.to_thread(authorities) if url.startswith("https:") else True
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.request(method, URL(url, encoded=True), ssl=tls, **options) as answer,
        ):
            yield answer
    except aiohttp.ClientConnectorError as error:
        client.http.direct.avoid()
        raise _unavailable(str(error)) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _unavailable(str(error) or type(error).__name__) from error


def _unavailable(what: str) -> UnavailableError:
    error = LooplineError("bucket", f"the object storage of this grid {what}", "it is tried again for a while", 503)
    return UnavailableError(error, may_have_acted=True)
