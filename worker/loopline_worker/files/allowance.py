"""The network allowance: whether files may go over the network now, by the owner's preferences.

While it is closed no file begins to come or go: results wait where they are, and no new task starts. What is on its
way is finished. What tasks themselves send, and the link to the master (a few bytes a second), are not counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

log = logging.getLogger(__name__)

_MB = 1e6
_SAVE_EVERY_S = 30.0


class NetworkAllowance:
    """Allowance of one worker; ``spend`` counts the bytes moved, ``look`` returns the consequence."""

    def __init__(self, file: Path, most_mb_a_day: float | None = None, *, on_metered: bool = False) -> None:
        self.is_metered = False
        self.why_closed = ""
        """Why no file may begin to come or go; empty if it may."""
        self._file = file
        self._most_mb = most_mb_a_day
        self._on_metered = on_metered
        self._opened = asyncio.Event()
        self._opened.set()
        self._saved_mb, self._saved_at = 0.0, 0.0
        self._day, self.moved_mb = self._read() if most_mb_a_day is not None else ("", 0.0)

    @property
    def asks_for_metered(self) -> bool:
        """True if it matters whether the connection is metered."""
        return not self._on_metered

    def spend(self, count_bytes: int) -> None:
        """Count bytes of a file that came or went. Any thread may call it."""
        self.moved_mb += count_bytes / _MB

    def look(self, today: str) -> str:
        """Look at the day and at what has been moved on it; return why it is closed."""
        if today != self._day:
            self._day, self.moved_mb = today, 0.0
        self.why_closed = self._reason()
        if self.why_closed:
            self._opened.clear()
        else:
            self._opened.set()
        self._save()
        return self.why_closed

    async def wait(self) -> None:
        """Wait until files may come and go."""
        await self._opened.wait()

    def _reason(self) -> str:
        if self.is_metered and not self._on_metered:
            return "the network connection is metered"
        if self._most_mb is not None and self.moved_mb >= self._most_mb:
            return f"today's {self._most_mb:g} MB of the network are used up"
        return ""

    def _save(self) -> None:
        now = time.monotonic()
        if self._most_mb is None or self.moved_mb == self._saved_mb or now - self._saved_at < _SAVE_EVERY_S:
            return
        self._saved_mb, self._saved_at = self.moved_mb, now
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_text(json.dumps({"day": self._day, "moved_mb": self.moved_mb}), "utf-8")
            unfinished.replace(self._file)
        except OSError as error:
            log.debug("cannot save what went over the network today: %s", error)

    def _read(self) -> tuple[str, float]:
        try:
            saved = json.loads(self._file.read_text("utf-8"))
            return str(saved["day"]), float(saved["moved_mb"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("cannot read %s (%s): today's traffic is counted from zero", self._file, error)
        return "", 0.0
