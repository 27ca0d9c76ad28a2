"""Contention for the processor between tasks and the owner's programs, seen within hundredths of a second.

Weights do not protect the owner everywhere: a session beside the worker's own, or another user's slice, shares the
processor with the whole group of the worker, however low the priority of its tasks within the group. There the tasks
must be frozen as soon as both want the processor. The kernel reports how long any process waited for it (PSI), and
the CPU time of programs of ordinary priority; tasks are niced, so that time is the owner's.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_LEAST_WAIT = 0.2
"""Share of the time in which somebody waited, below which nobody is disturbed."""
_LEAST_CORES = 0.25
"""Cores' worth of others' programs: below it they are the small change of a system at rest."""
_HOLD_S, _LONGEST_HOLD_S = 2.0, 32.0
"""Tasks stand still for so long, and twice as long each time that the cores are contended as soon as they go on."""
_SOON_S = 4.0


@dataclass(frozen=True, slots=True)
class _Times:
    at: float
    waited_s: float  # by anybody for the processor
    others_s: float  # used by programs of ordinary priority, without the agent
    idle_s: float


class Contention:
    """Contention on this computer. ``look`` is called many times a second while tasks run."""

    def __init__(self, cores: float, proc: Path = _PROC, own_cpu_s: Callable[[], float] | None = None) -> None:
        self._cores = cores
        self._own_cpu_s = own_cpu_s or _own_cpu_s
        self._pressure, self._stat = proc / "pressure/cpu", proc / "stat"
        self._last: _Times | None = None
        self._times_seen = 0
        self._wanted = 0.0
        self._until = -math.inf
        self._hold_s = _HOLD_S

    def forget(self) -> None:
        """Reset, after a period without tasks."""
        self._last, self._times_seen = None, 0

    def wanted(self, now: float) -> float:
        """Return the cores that others were seen to want, while tasks are held back for it; otherwise 0."""
        return self._wanted if now < self._until else 0.0

    def look(self, now: float, times: int = 1) -> bool:
        """Look. True if the processor has been contended in this many looks without a break: tasks are held back."""
        last, self._last = self._last, self._read(now)
        if last is None or self._last is None or now <= last.at:
            return False
        wanted = self._wants(last, self._last)
        self._times_seen = self._times_seen + 1 if wanted else 0
        if self._times_seen < times:
            return False
        self._hold(wanted, now)
        return True

    def _wants(self, last: _Times, now: _Times) -> float:
        """Return the cores that the owner's programs want; 0 if none waits.

        A program that shares a core with a task gets half of it, so the demand is twice the CPU time used during
        waits.
        """
        elapsed_s = now.at - last.at
        waited = min(1.0, (now.waited_s - last.waited_s) / elapsed_s)
        others = (now.others_s - last.others_s) / elapsed_s
        if waited < _LEAST_WAIT or others < _LEAST_CORES:
            return 0.0
        return min(self._cores, 2 * others / waited)

    def _hold(self, wanted: float, now: float) -> None:
        if now >= self._until:  # else they are held back already, and still too many run
            again_soon = now - self._until < _SOON_S
            self._hold_s = min(_LONGEST_HOLD_S, 2 * self._hold_s) if again_soon else _HOLD_S
            self._wanted = 0.0
        self._wanted = max(self._wanted, wanted)
        self._until = now + self._hold_s

    def _read(self, now: float) -> _Times | None:
        try:
            fields = self._stat.read_text().split(maxsplit=9)
            others, idle = (sum(int(fields[place]) for place in places) / _TICKS_S for places in ((1, 3), (4, 5)))
            return _Times(now, self._waited_s(idle, now), others - self._own_cpu_s(), idle)
        except (OSError, ValueError, IndexError):
            return None

    def _waited_s(self, idle_s: float, now: float) -> float:
        """Return how long processes have waited, in seconds. Without PSI, all time without an idle core counts."""
        try:
            total = self._pressure.read_text().partition("total=")[2].split(maxsplit=1)[0]
            return int(total) / 1e6
        except (OSError, ValueError, IndexError):
            last = self._last
            if last is None:
                return 0.0
            is_full = idle_s - last.idle_s < (1 - _LEAST_WAIT) * 0.25 * (now - last.at)
            return last.waited_s + (now - last.at) * is_full


def _own_cpu_s() -> float:
    """Return the agent's CPU time, unless it is niced as its tasks are: then it is not among others' anyhow."""
    return 0.0 if os.nice(0) > 0 else time.process_time()
