"""The agent's record of attempts: a line of its log at each start and end, and whose tasks ran here and for how long.

A grid of short tasks has thousands a second at one worker: written one by one, they would cost more than the rest of
the agent's work, and fill a disk. So their number is logged if they would flood the log; ``--verbose`` has them all.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol.worker_link import Run

log = logging.getLogger(__name__)

_AT_ONCE = 200
_PER_S = 5.0
_SAVE_EVERY_S = 30.0
_UNKNOWN = "(unknown)"
_MOST_USERS = 200


class AttemptLog:
    """Logs a burst of lines, then a few per second; ``sum_up`` now and then counts those left out.

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
            whose = f" of {run.user}" if run.user else ""
            job = f" ({run.job_name})" if run.job_name else ""
            log.info("attempt %s%s%s starts: %.200s", run.attempt, whose, job, what)

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


@dataclass(slots=True)
class Contributed:
    """Share of one user: ended attempts, core-seconds, and the last end in seconds since 1970."""

    tasks: int = 0
    core_s: float = 0.0
    last_at: float = 0.0


class Contribution:
    """The contribution of this computer since its first agent, counted at the ends of attempts.

    A killed agent forgets what the last half minute brought.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._under_way: dict[AttemptId, tuple[str, int]] = {}  # user and slots
        self._is_saved, self._saved_at = True, 0.0
        self.since, self.users = self._read()

    def began(self, run: Run) -> None:
        """Note whose attempt begins."""
        self._under_way[run.attempt] = (run.user or _UNKNOWN, run.slots)

    def ended(self, result: Result) -> None:
        """Count an attempt that had begun."""
        user, slots = self._under_way.pop(result.attempt, ("", 0))
        if not user:
            return
        if user not in self.users and len(self.users) >= _MOST_USERS:
            user = _UNKNOWN
        entry = self.users.setdefault(user, Contributed())
        entry.tasks += 1
        entry.core_s += result.wall_s * slots
        entry.last_at = time.time()
        self._is_saved = False

    def save(self, at_once: bool = False) -> None:
        """Save what has changed, unless that was done a moment ago."""
        now = time.monotonic()
        if self._is_saved or (not at_once and now - self._saved_at < _SAVE_EVERY_S):
            return
        self._is_saved, self._saved_at = True, now
        unfinished = self._file.with_suffix(".tmp")
        try:
            users = {user: asdict(entry) for user, entry in self.users.items()}
            unfinished.write_text(json.dumps({"since": self.since, "users": users}), "utf-8")
            unfinished.replace(self._file)
        except OSError as error:
            log.debug("cannot save what this computer has contributed: %s", error)

    def _read(self) -> tuple[float, dict[str, Contributed]]:
        try:
            saved = json.loads(self._file.read_text("utf-8"))
            return float(saved["since"]), {user: Contributed(**entry) for user, entry in saved["users"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("cannot read %s (%s): counting begins again", self._file, error)
        return time.time(), {}
