"""The HTTP client: the master's address, our token, one HTTP session, and the pauses between requests."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.direct import DirectWay
from loopline_worker.link.master_trust import MasterTrust
from loopline_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from ssl import SSLContext

    import aiohttp

_CONNECTIONS = 8
_CONNECT_WITHIN_S = 10.0


class HttpClient:
    """Access to the master by HTTP. Its session is opened with the first file."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.trust = MasterTrust(settings)
        self.direct = DirectWay()
        self._http: aiohttp.ClientSession | None = None
        self._under_way: dict[asyncio.Timeout, float] = {}  # requests, and when something of each moved last

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._http:
            await self._http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        """Return the session for files; aiohttp is imported with the first of them."""
        if self._http is None:
            import aiohttp

            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self.tls() or True)
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), connector=connector)
        return self._http

    def timeout(self, silence_s: float) -> aiohttp.ClientTimeout:
        """Return the timeout for a file: unlimited as long as bytes come or go."""
        import aiohttp

        return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN_S, sock_read=silence_s)

    @asynccontextmanager
    async def while_it_moves(self) -> AsyncIterator[Callable[[], None]]:
        """Make a request within; call what this yields whenever something of it has moved.

        Raises TimeoutError if nothing has moved for a lease, and the link is lost or was lost in that time: the
        connection may be dead without a sign of it. While the link is open, the other end may take its time.
        """
        async with asyncio.timeout(None) as limit:

            def moved() -> None:
                self._under_way[limit] = time.monotonic()

            moved()
            try:
                yield moved
            finally:
                self._under_way.pop(limit, None)

    def tls(self) -> SSLContext | None:
        """Return the TLS context of connections; None for plain HTTP."""
        return self.trust.context()

    async def turn_to_next(self, silence_s: float = math.inf) -> None:
        """Try the next of several addresses; requests that are under way to this one, which may be gone, end now.

        With only one address, requests end that have made no progress for ``silence_s``: the link is lost as well.
        """
        before = self.master
        self.trust.turn_to_next()
        if self.master != before:
            await self._hang_up()
        else:
            self._give_up(time.monotonic() - silence_s)

    def link_opened(self, lease_s: float) -> None:
        """End the requests that began before, unless something of them moves within a lease.

        Their connections may be dead as well: after a sleep there is no sign of it.
        """
        if self._under_way:
            asyncio.get_running_loop().call_later(lease_s, self._give_up, time.monotonic())

    def _give_up(self, moved_before: float) -> None:
        for limit in [limit for limit, moved_at in self._under_way.items() if moved_at <= moved_before]:
            del self._under_way[limit]
            limit.reschedule(asyncio.get_running_loop().time())

    async def _hang_up(self) -> None:
        """End requests under way; their callers retry."""
        http, self._http = self._http, None
        if http:
            await http.close()

    @property
    def master(self) -> str:
        """Return the address of the master."""
        return self.trust.master

    def address(self, path: str) -> str:
        """Return the URL of a path below the master's REST prefix."""
        return f"{self.master}{API_PREFIX}/{path}"

    def headers(self) -> dict[str, str]:
        """Return the header with the token, which is read again because it may change. Raises LooplineError if that
        fails.
        """
        token = self._settings.find_token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def refusal(self, status: int) -> LooplineError | None:
        """Return the error for a final refusal; None if a second request may succeed."""
        if status not in (401, 403):
            return None
        if not self._settings.find_token():
            hint = "give a worker's token with --token-file or LOOPLINE_TOKEN: `loopline token create` makes one"
            return LooplineError("token", f"{self.master} asks for a token", hint, status)
        hint = "`loopline token create` makes a new one for workers"
        return LooplineError("token", f"{self.master} does not accept this worker's token", hint, status)

    def backoff(self) -> Backoff:
        """Return new pauses between attempts, as the settings have them."""
        return Backoff(self._settings.retry_min_s, self._settings.retry_max_s)


class Backoff:
    """Pauses that grow with every try and are never in step with other workers'."""

    def __init__(self, min_s: float, max_s: float) -> None:
        self.max_s = max_s
        self._min_s = min_s
        self._tries = 0

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._tries = 0

    def next_s(self) -> float:
        """Return the next pause in seconds."""
        longest_s: float = min(self.max_s, self._min_s * 2 ** min(self._tries, 30))
        self._tries += 1
        return longest_s * random.uniform(0.5, 1)  # noqa: S311
