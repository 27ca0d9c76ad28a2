"""A clock that cannot be set: it counts from the boot of the computer, including the time in suspend.

Times of day are for people and for other computers. What lasts a while here (a pause, the owner's idle time, the time
without a task) is measured by this clock: when the clock of the computer is set, an hour stays an hour.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

boot_s: Callable[[], float] = time.monotonic
"""Returns seconds since the computer started."""
if sys.platform == "linux":
    boot_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class SteadyTime:
    """Seconds since 1970 as the computer's clock had it when this was made, and counted by ``boot_s`` since then."""

    def __init__(self) -> None:
        self._began_at = time.time() - boot_s()

    def __call__(self) -> float:
        """Return the time now."""
        return self._began_at + boot_s()

    @property
    def set_by_s(self) -> float:
        """Return by how much the computer's clock was set since then; below 0: back. Less than a second is 0."""
        ahead_s = time.time() - self()
        return ahead_s if abs(ahead_s) >= 1.0 else 0.0


steady = SteadyTime()


def boot_id(file: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return what tells this start of the computer from others; empty where that is unknown."""
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
