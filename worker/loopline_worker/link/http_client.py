"""The way to the master: its address, our token, one HTTP session, and how long to wait between two tries."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Self

from loopline_shared.errors import LooplineError
from loopline_shared.joining import Membership
from loopline_shared.rest.address import API_PREFIX
from loopline_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from ssl import SSLContext

    import aiohttp

_CONNECTIONS = 8
_CONNECT_WITHIN_S = 10.0


class HttpClient:
    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._http:
            await self._http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        """For files; opened, and what it takes loaded, with the first of them."""
        if self._http is None:
            import aiohttp

            pin = self._fingerprint()
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=aiohttp.Fingerprint(pin) if pin else True)
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), connector=connector)
        return self._http

    def timeout(self, silence_s: float) -> aiohttp.ClientTimeout:
        """Of a file: however long it takes, as long as something comes or goes."""
        import aiohttp

        return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN_S, sock_read=silence_s)

    def tls(self) -> SSLContext | None:
        """How the link is to be secured; None: not at all."""
        if not self.master.startswith("https:"):
            return None
        from loopline_worker.link import tls

        pin = self._fingerprint()
        return tls.pinned(pin) if pin else tls.usual()

    def _fingerprint(self) -> bytes:
        """Of the only certificate that is believed to be the master's, where the join line named one."""
        member = Membership.read()
        is_named = member and member.fingerprint and self._settings.belongs_to(member)
        return bytes.fromhex(member.fingerprint) if member and is_named else b""

    @property
    def master(self) -> str:
        return self._settings.master

    def address(self, path: str) -> str:
        """A place below the master's REST prefix."""
        return f"{self.master}{API_PREFIX}/{path}"

    def headers(self) -> dict[str, str]:
        """The token as it is now: it may be changed while the agent runs. LooplineError where it cannot be read."""
        token = self._settings.find_token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def refusal(self, status: int) -> LooplineError | None:
        """What an answer of the master means that no second try will change."""
        if status not in (401, 403):
            return None
        if not self._settings.find_token():
            hint = "give a worker's token with --token-file or LOOPLINE_TOKEN: `loopline token create` makes one"
            return LooplineError("token", f"{self.master} asks for a token", hint, status)
        hint = "`loopline token create` makes a new one for workers"
        return LooplineError("token", f"{self.master} does not accept this worker's token", hint, status)

    def backoff(self) -> Backoff:
        return Backoff(self._settings.retry_min_s, self._settings.retry_max_s)


class Backoff:
    """Pauses that grow with every try and are never in step with other workers'."""

    def __init__(self, min_s: float, max_s: float) -> None:
        self.max_s = max_s
        self._min_s = min_s
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next_s(self) -> float:
        longest_s: float = min(self.max_s, self._min_s * 2 ** min(self._tries, 30))
        self._tries += 1
        return longest_s * random.uniform(0.5, 1)  # noqa: S311
