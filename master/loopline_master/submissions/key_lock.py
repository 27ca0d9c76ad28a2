"""Locks by key."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

Returned = TypeVar("Returned")


class KeyLock:
    """Runs work of the same key one at a time, and to its end even if the requester has disconnected."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def run(self, key: Hashable, work: Coroutine[Any, Any, Returned]) -> Returned:
        """Wait for earlier work of this key, then do this."""
        return await asyncio.shield(self._locked(key, work))

    async def _locked(self, key: Hashable, work: Coroutine[Any, Any, Returned]) -> Returned:
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await work
