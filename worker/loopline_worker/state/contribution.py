"""The contribution of this computer: whose tasks ran here and for how long, since the first agent counted."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol.worker_link import Run

log = logging.getLogger(__name__)

_SAVE_EVERY_S = 30.0
_UNKNOWN = "(unknown)"
"""The user of tasks that a master of an earlier release sent."""
_MOST_USERS = 200


@dataclass(slots=True)
class Contributed:
    """Share of one user: ended attempts, core-seconds, and the last end in seconds since 1970."""

    tasks: int = 0
    core_s: float = 0.0
    last_at: float = 0.0


class Contribution:
    """Counts attempts at their ends. A killed agent forgets what the last half minute brought."""

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
            log.warning("cannot read %s (%s): counting begins anew", self._file, error)
        return time.time(), {}
