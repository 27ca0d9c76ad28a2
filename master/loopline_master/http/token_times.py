"""Times of tokens: the last use of each, and expiry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from loopline_master.store.token_store import TokenStore

_STORED_EVERY_S = 60.0


class TokenTimes:
    """Remembers uses, storing them once a minute and before they are read, and ends links of expired tokens."""

    def __init__(self, tokens: TokenStore, end: Callable[[str], None]) -> None:
        """``end``: ends the links and streams of a token."""
        self._tokens = tokens
        self._end = end
        self._uses: dict[str, tuple[float, str]] = {}
        self._expiring: dict[str, float] = {}  # of tokens used since the start

    def note_use(self, token: str, address: str, expires_at: float | None) -> None:
        """Record the use of a valid token."""
        now = time.time()
        self._uses[token] = (now, address)
        if expires_at is not None and token not in self._expiring:
            self._expiring[token] = expires_at
            asyncio.get_running_loop().call_later(expires_at - now, self._expire, token)

    def end_expired(self, now: float) -> None:
        """End the links and streams of the tokens that have expired."""
        for token in [token for token, expires_at in self._expiring.items() if expires_at <= now]:
            self._expire(token)

    def _expire(self, token: str) -> None:
        if self._expiring.pop(token, None) is not None:
            self._end(token)

    async def store(self) -> None:
        """Store the uses that are not stored yet."""
        uses, self._uses = self._uses, {}
        if uses:
            await self._tokens.note_uses(uses)

    async def run(self) -> None:
        """Store the uses once a minute, and end links of tokens that expired early when the clock was set forward."""
        while True:
            await asyncio.sleep(_STORED_EVERY_S)
            self.end_expired(time.time())
            await self.store()
