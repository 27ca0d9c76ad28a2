"""A build under way: the attempts that wait for it, how far it is, and its end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from loopline_worker.environments.build_error import BuildError
from loopline_worker.environments.environment import Environment

_LOOK_EVERY_S = 0.5
_SHARE = 20
"""Time between two checks of the size, as a multiple of a check's duration."""


class Maker(Protocol):
    """Maker of an environment: processes that can be ended, and frozen for the owner."""

    def measure(self) -> float:
        """Return the CPU seconds that they have taken until now."""

    def kill(self) -> None:
        """Kill them."""

    def freeze(self) -> None:
        """Stop them until they are thawed."""

    def thaw(self) -> None:
        """Let them go on."""


class Build:
    """A build for all attempts that wait for it. It is frozen while all of them are; without any it is given up."""

    def __init__(self, what: str, folder: Path, limit_bytes: int, maker: Maker) -> None:
        """``what``: a few words for the action. Nothing happens before ``start``."""
        self.size_bytes = 0
        self._what = what
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._maker = maker
        self._waiting: dict[object, tuple[int, bool]] = {}  # waiting tasks: the job, and whether it is frozen
        self._is_frozen = False
        self._is_over_limit = False
        self._since = time.monotonic()
        self._task: asyncio.Task[Environment] | None = None

    @property
    def is_ending(self) -> bool:
        """True once it was given up: later jobs wait for its end, and start another one."""
        return bool(self._task and self._task.cancelling())

    @property
    def cpu_s(self) -> float:
        """CPU seconds taken until now."""
        return self._maker.measure()

    @property
    def jobs(self) -> set[int]:
        """The jobs whose tasks wait for it."""
        return {job for job, _ in self._waiting.values()}

    @property
    def words(self) -> str:
        """The work and its progress, in words."""
        frozen = ", frozen for the owner" if self._is_frozen else ""
        return f"{self._what}: {self.size_bytes / 1e6:.0f} MB after {time.monotonic() - self._since:.0f} s{frozen}"

    def start(self, make: Callable[[], Awaitable[Environment]]) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(make))

    async def wait(self, who: object, job: int, is_frozen: bool = False) -> Environment:
        """Wait for the environment. Raises BuildError or OSError."""
        assert self._task
        self._waiting[who] = (job, is_frozen)
        self._handle_owner()
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting.pop(who, None)
            if not self._waiting and not self._task.done():
                self._task.cancel()
            self._handle_owner()

    async def gone(self) -> None:
        """Wait until nothing of it runs."""
        if self._task:
            await asyncio.wait([self._task])

    def freeze(self, who: object, is_frozen: bool) -> None:
        """Note that a waiting task was frozen or thawed."""
        if who in self._waiting:
            self._waiting[who] = (self._waiting[who][0], is_frozen)
            self._handle_owner()

    def _handle_owner(self) -> None:
        wanted = bool(self._waiting) and all(is_frozen for _, is_frozen in self._waiting.values())
        if wanted != self._is_frozen:
            self._is_frozen = wanted
            (self._maker.freeze if wanted else self._maker.thaw)()

    async def _run(self, make: Callable[[], Awaitable[Environment]]) -> Environment:
        watching = asyncio.create_task(self._watch())
        try:
            return await make()
        except BuildError:
            if self._is_over_limit:
                limit = f"{self._limit_bytes:,} bytes (cache_limit_bytes of this worker)"
                raise BuildError(f"it is larger than {limit}", is_users=True) from None
            raise
        except asyncio.CancelledError:
            self._maker.thaw()
            self._maker.kill()
            raise
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            self.size_bytes = await asyncio.to_thread(size_of, self._folder)
            if self.size_bytes > self._limit_bytes:
                self._is_over_limit = True
                self._maker.kill()
            await asyncio.sleep(max(_LOOK_EVERY_S, _SHARE * (time.monotonic() - began)))


def size_of(folder: Path) -> int:
    """Return the bytes that a folder takes up on its disk; more than any limit if it is nested too deeply."""
    try:
        return _size_of(folder)
    except RecursionError:
        return sys.maxsize


def _size_of(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118 - many files
            except OSError:
                continue
            total += getattr(status, "st_blocks", 0) * 512 or status.st_size
    return total
