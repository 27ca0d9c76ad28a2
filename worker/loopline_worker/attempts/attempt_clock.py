"""The clock of an attempt: its run time, and when its phases ended, in seconds since it got its slot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from loopline_shared.model import Phases
from loopline_worker.attempts.limits import Stopwatch
from loopline_worker.host.boot_clock import boot_s

_now = boot_s


class AttemptClock:
    """Starts when the attempt gets its slot. The run time excludes frozen time; the phases include it."""

    def __init__(self) -> None:
        self.began_at = math.inf  # by ``time.monotonic``
        self._ran = Stopwatch()
        self._measured_s: float | None = None  # run time as measured by the supervisor
        self._was_frozen = False
        self._seated_at = _now()
        self._inputs_s: float | None = 0.0  # None, as below: not yet
        self._began_s: float | None = 0.0
        self._ended_s = 0.0

    @property
    def wall_s(self) -> float:
        """Return the run time until now or until the end; 0 until its inputs and its software are there."""
        if self._measured_s is not None:
            return self._measured_s
        return 0.0 if self._began_s is None else self._ran.elapsed_s

    @property
    def in_slot_s(self) -> float:
        """Return the time since it got its slot."""
        return _now() - self._seated_at

    def phases(self, *, has_outputs: bool) -> Phases | None:
        """Return when each phase ended. Call it once outputs are collected.

        None if the attempt began at once, was never frozen and has no outputs.
        """
        if self._inputs_s == 0.0 and not self._was_frozen and not has_outputs:
            return None
        end = self._ended_s
        inputs_s = end if self._inputs_s is None else self._inputs_s
        began_s = end if self._began_s is None else self._began_s
        frozen_s = max(0.0, end - began_s - self._ran.elapsed_s) if self._was_frozen else 0.0
        return Phases(inputs_s, began_s, end, frozen_s, max(end, self.in_slot_s) if has_outputs else 0.0)

    def sets_up(self) -> None:
        """Note that the attempt waits for inputs or software."""
        self._inputs_s = self._began_s = None

    def has_inputs(self) -> None:
        """Note that inputs and software are ready."""
        self._inputs_s = self.in_slot_s

    def begins(self, limit_s: float | None, on_end: Callable[[], None]) -> None:
        """Note that the process starts now. ``on_end`` is called after ``limit_s`` of run time; None: never."""
        self._ran = Stopwatch()
        self.began_at = time.monotonic()
        if self._began_s is None:
            self._began_s = self.in_slot_s
        else:
            self._seated_at = _now()
        if limit_s is not None:
            self._ran.limit(limit_s, on_end)

    def freeze(self) -> None:
        """Stop the run time until ``thaw()``."""
        self._was_frozen = True
        self._ran.stop()

    def thaw(self) -> None:
        """Continue the run time."""
        self._ran.start()

    def stop(self) -> None:
        """Stop the run time: the last process is gone."""
        self._ran.stop()

    def ends(self, elapsed_s: float | None) -> None:
        """Note the end of the last process. ``elapsed_s``: run time by the supervisor's clock; None: not measured."""
        self._ran.stop()
        self._ended_s = self.in_slot_s
        self._measured_s = None if self._was_frozen else elapsed_s
