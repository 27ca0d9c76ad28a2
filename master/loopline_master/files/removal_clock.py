"""A clock for the removal of old data: it follows a jump forward of the computer's clock only after a day."""

from __future__ import annotations

import time
from collections.abc import Callable

_TOLERATED_S = 3600.0
_BELIEVED_AFTER_S = 86400.0


class RemovalClock:
    """Seconds since 1970, for the automatic removal of old jobs, files, workers and log entries.

    A computer's clock that is set a year ahead by mistake would otherwise remove all of them. A jump forward counts
    only if it lasts for a day; a day without removals does no harm. The time while the database was closed is a jump
    too, because it looks like a wrong clock. A restart believes the time of the last step.
    """

    def __init__(
        self,
        after: float = 0.0,
        wall: Callable[[], float] = time.time,
        counted: Callable[[], float] = time.monotonic,
    ) -> None:
        """``after``: the last time in the database; 0: it is new, and the computer's clock is believed."""
        self._wall, self._counted = wall, counted
        self._offset_s = (after or wall()) - counted()
        self._ahead_since: float | None = None  # by ``counted``

    def __call__(self) -> float:
        """Return the time now."""
        counted, wall = self._counted(), self._wall()
        if wall - (self._offset_s + counted) <= _TOLERATED_S:
            self._ahead_since, self._offset_s = None, wall - counted
        elif self._ahead_since is None:
            self._ahead_since = counted
        elif counted - self._ahead_since >= _BELIEVED_AFTER_S:
            self._ahead_since, self._offset_s = None, wall - counted
        return self._offset_s + counted
