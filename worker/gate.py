"""The way to the master: its address, our token, one HTTP session, and how long to wait between two tries."""

from __future__ import annotations

import random
from typing import Self

import aiohttp

from shared.address import API_PREFIX
from shared.errors import LooplineError
from shared.joining import Membership
from worker.settings import WorkerSettings

_CONNECTIONS = 8


def _certificate(settings: WorkerSettings) -> aiohttp.Fingerprint | bool:
    """The only one that is believed to be the master's, where the join line named one; else what others believe."""
    member = Membership.read()
    is_named = member and member.fingerprint and settings.belongs_to(member)
    return aiohttp.Fingerprint(bytes.fromhex(member.fingerprint)) if member and is_named else True


class Gate:
    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=_certificate(settings)),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.close()

    @property
    def master(self) -> str:
        return str(self._settings.master).rstrip("/")

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
