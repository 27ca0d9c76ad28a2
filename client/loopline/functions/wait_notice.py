"""A line on stderr if calls wait because no worker can run them, as the master explains it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress

from loopline.rest_client import RestClient
from loopline_shared.errors import LooplineError

FIRST_CHECK_S = 5.0
_LONGEST_PAUSE_S = 300.0
_REASONS = {"no_worker", "paused"}
"""Codes of reasons why calls wait beside free slots until a person acts."""


class WaitNotice:
    """Checks on the calls of an executor while none of them ends. It lives in the loop in which it is made.

    ``waiting_job``: returns the job of a call that has not ended; None if there is none.
    """

    def __init__(self, client: RestClient, waiting_job: Callable[[], int | None]) -> None:
        self._client, self._waiting_job = client, waiting_job
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._pause_s = FIRST_CHECK_S
        self._has_ended = False
        self._said = ""

    def submitted(self) -> None:
        """Check soon, if no check is planned."""
        if self._timer is None:
            self._pause_s = FIRST_CHECK_S
            self._plan()

    def ended(self) -> None:
        """Note that a call has ended."""
        self._has_ended = True

    def close(self) -> None:
        """Check no more."""
        if self._timer:
            self._timer.cancel()
        if self._checking:
            self._checking.cancel()

    def _plan(self) -> None:
        self._timer = self._loop.call_later(self._pause_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        job = self._waiting_job()
        if job is None:
            return
        if self._has_ended:
            self._has_ended, self._pause_s = False, FIRST_CHECK_S
        else:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._checking = asyncio.create_task(self._check(job))
        self._plan()

    async def _check(self, job: int) -> None:
        with suppress(LooplineError):  # the job has just ended, or the link has the same error
            reasons = (await self._client.explain(job)).reasons
            details = "; ".join(reason.detail for reason in reasons if reason.code in _REASONS)
            if details and details != self._said:
                print(f"loopline: job {job} waits: {details}", file=sys.stderr)
            self._said = details
