"""The agent's log of attempts: a line at each start and end, or their number if that would flood the log.

A grid of short tasks has thousands a second at one worker: written one by one, they would cost more than the rest of
the agent's work, and fill a disk. ``--verbose`` has them all.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections import Counter

from loopline_shared.model import Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.state.contribution import Contribution

log = logging.getLogger(__name__)

_AT_ONCE = 200
_PER_S = 5.0


class AttemptLog:
    """Logs so many lines at once and so many a second; ``sum_up`` now and then counts those left out.

    All of them count in the computer's ``contribution``.
    """

    def __init__(self, contribution: Contribution) -> None:
        self.contribution = contribution
        self._left = float(_AT_ONCE)
        self._at = time.monotonic()
        self._untold: Counter[str] = Counter()

    def began(self, run: Run) -> None:
        """Log the start of an attempt."""
        self.contribution.began(run)
        if self._tells("began"):
            what = "a function" if run.function else shlex.join(run.command)
            log.info("attempt %s starts: %.200s", run.attempt, what)

    def ended(self, result: Result) -> None:
        """Log the end of an attempt."""
        self.contribution.ended(result)
        if self._tells(result.outcome):
            log.info("attempt %s %s%s", result.attempt, result.outcome, _detail(result))

    def sum_up(self) -> None:
        """Log the number of lines left out since the last time."""
        self.contribution.save()
        now = time.monotonic()
        self._left = min(_AT_ONCE, self._left + (now - self._at) * _PER_S)
        self._at = now
        if self._untold:
            told = ", ".join(f"{count:,} {what}" for what, count in self._untold.items())
            log.info("attempts beside those: %s", told)
            self._untold.clear()

    def _tells(self, what: str) -> bool:
        if self._left >= 1:
            self._left -= 1
            return True
        if log.isEnabledFor(logging.DEBUG):
            return True
        self._untold[what] += 1
        return False


def _detail(result: Result) -> str:
    """Return the detail of a result that its outcome leaves open."""
    if result.reason:
        return f": {result.reason}"
    if result.exit_code:
        return f" with exit code {result.exit_code}"
    return f" after {result.wall_s:.1f} s"
