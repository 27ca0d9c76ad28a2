"""Files of one user: how many bytes each may keep on this master's disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from loopline_master.files.bucket import URL_HOLDS_S
from loopline_master.store import Store
from loopline_shared.errors import ExceededLimit, LooplineError
from loopline_shared.rest.bodies import LimitUse


class UserFiles:
    """Counts the files that users upload, each for the first who brought it, until retention removes it."""

    def __init__(self, store: Store, most_bytes: int) -> None:
        """``most_bytes``: the limit of one user."""
        self._uploads, self._most_bytes = store.uploads, most_bytes
        self._used: Counter[str] | None = None  # by user; None: not read yet
        self._coming = Counter[str]()  # bytes of uploads under way, as far as they are here
        self._expected: dict[str, tuple[str, int, float]] = {}  # direct uploads by file: user, size, expiry

    async def check(self, user: str, more_bytes: int) -> None:
        """Raises LooplineError if ``more_bytes`` would exceed the user's limit."""
        has = (await self._counts())[user] + self._coming[user] + self._bytes_expected(user)
        if has + more_bytes > self._most_bytes:
            message = (
                f"{user} has {has:,} of the {self._most_bytes:,} bytes of files that one user may keep here; "
                f"this would be {more_bytes:,} more"
            )
            hint = "an admin removes those of ended jobs (`loopline prune`), or sets limits.user_file_bytes"
            quota = ExceededLimit(self._most_bytes, max(0, self._most_bytes - has), "content-bytes")
            raise LooplineError("user_file_bytes", message, hint, 429, quota=quota)

    async def counted(self, user: str, content: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the content of an upload as it comes. Raises LooplineError once the user would have too much.

        So neither several uploads at once nor one of unknown length go beyond what one user may have.
        """
        came = 0
        try:
            async for piece in content:
                await self.check(user, len(piece))
                came += len(piece)
                self._coming[user] += len(piece)
                yield piece
        finally:
            self._coming[user] -= came
            self._coming += Counter()  # drops users without uploads

    def expect(self, user: str, sha256: str, size_bytes: int) -> None:
        """Note that the user sends a file past the master; it counts from now on."""
        self._expected.pop(sha256, None)
        self._expected[sha256] = user, size_bytes, time.monotonic() + URL_HOLDS_S

    async def arrived(self, user: str, sha256: str, size_bytes: int) -> None:
        """Count a file that was found where it was to go, if it is this user who has sent it."""
        if self._expected.get(sha256, ("",))[0] == user:
            del self._expected[sha256]
            await self.add(user, sha256, size_bytes)

    def _bytes_expected(self, user: str) -> int:
        while self._expected and (oldest := next(iter(self._expected))):
            if self._expected[oldest][2] > time.monotonic():
                break
            del self._expected[oldest]
        return sum(size_bytes for name, size_bytes, _ in self._expected.values() if name == user)

    async def add(self, user: str, sha256: str, size_bytes: int) -> None:
        """Count a file that the user has brought."""
        counts = await self._counts()
        if await self._uploads.add(sha256, user, size_bytes):
            counts[user] += size_bytes

    async def forget(self, names: Sequence[str]) -> None:
        """Note that files were removed."""
        if names:
            await self._uploads.remove(names)
            self._used = None

    async def limit_of(self, user: str) -> LimitUse:
        """Return what a user has here, and may have."""
        return LimitUse(what="file_bytes", used=(await self._counts())[user], allowed=self._most_bytes)

    async def _counts(self) -> Counter[str]:
        if self._used is None:
            self._used = Counter(await self._uploads.bytes_by_user())
        return self._used
