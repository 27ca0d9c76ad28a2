"""The locks that keep this computer awake while a task runs and its owner is away.

These are logind's lock *idle* and the lock of our own desktop (presence/session_lock.py). A login screen suspends the
computer by itself and ignores both. So logind's lock *sleep* is held there as well, until the first input. None of
them prevents a shutdown, or changes the power button or the lid.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from loopline_worker.power.login_manager import inhibit
from loopline_worker.presence.session_lock import WHY, lock_session
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.task_group import TaskGroup

if TYPE_CHECKING:
    from loopline_worker.presence.bus import Bus

log = logging.getLogger(__name__)

_AGAIN_S = 60.0


class SleepLocks:
    """Holds the wanted locks. One that is refused is tried again."""

    def __init__(self, task_group: TaskGroup) -> None:
        self._task_group = task_group
        self._wanted: tuple[str, ...] = ()
        self._held: dict[str, int] = {}
        self._session: Bus | None = None  # its end releases the desktop's lock
        self._acquiring: asyncio.Task[None] | None = None
        self._refusals: dict[str, str] = {}  # by lock

    def want(self, locks: tuple[str, ...]) -> None:
        """Take these locks of logind and the desktop's, and release all others; without any, the desktop's too."""
        if locks == self._wanted:
            return
        self._wanted = locks
        if self._acquiring:
            self._acquiring.cancel()
        for what in self._held.keys() - {*locks}:
            os.close(self._held.pop(what))
        if locks:
            self._acquiring = self._task_group.start(self._acquire(locks))
        elif self._session:
            self._session.close()
            self._session = None

    async def _acquire(self, locks: tuple[str, ...]) -> None:
        while True:
            for what in locks:
                if what not in self._held:
                    await self._acquire_one(what)
            if self._session is None:
                with suppress(Exception):  # most workers have no session
                    self._session = await run(lock_session())
            if len(self._held) == len(locks):
                return
            await asyncio.sleep(_AGAIN_S)

    async def _acquire_one(self, what: str) -> None:
        try:
            self._held[what] = await run(inhibit(what, WHY))
        except Exception as error:  # a library may raise anything
            refusal = str(error) or type(error).__name__
            if self._refusals.get(what) != refusal:
                self._refusals[what] = refusal
                log.info("cannot take logind's lock %s while a task runs: %s", what, refusal)
