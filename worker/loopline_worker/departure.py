"""When a worker ends by itself: at a fixed time, after an idle time, or after a time without its master.

A PC that its owner lends has none of these limits; an allocation of a cluster has all three.
"""

from __future__ import annotations

import math
import os
import re
import time
from datetime import datetime

from loopline_shared.protocol.gpus import MAX_GPUS

NO_GPU = "none"
"""Names no GPU."""
LEAVES_BEFORE_S = 5.0
"""Time before the fixed end when it leaves: tasks return to the queue, with a last Report."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def end_of_stay(value: object) -> float | None:
    """Return a duration from now, or a time, as seconds since 1970. Raises ValueError for anything else."""
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    if found := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return time.time() + int(found[1]) * _UNITS[found[2]]
    if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected 90s, 55m, 2h, or a time such as 2027-01-31T08:00:00Z, got {text!r:.50}") from None
    return moment.timestamp()


def end_of_allocation() -> float | None:
    """Return when the Slurm job around this process must end; None if that is unknown."""
    try:
        return end_of_stay(os.environ.get("SLURM_JOB_END_TIME"))
    except ValueError:
        return None


def gpus_of_allocation() -> tuple[str, ...]:
    """Return the indexes of the GPUs of the Slurm job around this process; empty without such a job.

    A job without GPUs has NO_GPU.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return ()
    found = list[str]()
    for part in os.environ.get("SLURM_JOB_GPUS", "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found += map(str, range(int(first), min(int(last or first), int(first) + MAX_GPUS) + 1))
    return tuple(found) or (NO_GPU,)


class Departure:
    """Watches for a reason to end. ``until`` is seconds since 1970; ``now`` may be by a clock that is never set."""

    def __init__(
        self, now: float, *, until: float | None, idle_timeout_s: float | None, death_timeout_s: float | None
    ) -> None:
        self.until = until
        self._idle_s, self._death_s = idle_timeout_s, death_timeout_s
        self._busy_at = self._linked_at = now

    @property
    def told(self) -> float | None:
        """By when the master may count on this worker; None: on end."""
        return None if self.until is None else max(0.0, self.until - LEAVES_BEFORE_S)

    def reason(self, now: float, *, is_idle: bool, is_linked: bool) -> str:
        """Return why this worker ends now; empty if it stays."""
        self._busy_at = self._busy_at if is_idle and is_linked else now
        self._linked_at = now if is_linked else self._linked_at
        if now >= (math.inf if self.told is None else self.told):
            return "its time is over"
        if self._idle_s is not None and now - self._busy_at >= self._idle_s:
            return f"no task came for {self._idle_s:g} s"
        if self._death_s is not None and now - self._linked_at >= self._death_s:
            return f"the master was away for {self._death_s:g} s"
        return ""
