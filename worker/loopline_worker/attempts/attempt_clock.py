"""The clock of an attempt: how long it ran, and when its phases were over, counted from when it took its slot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from loopline_shared.model import Phases
from loopline_worker.attempts.limits import Stopwatch
from loopline_worker.host.boot_clock import boot_s

_now = boot_s


class AttemptClock:
    """Begins as the attempt takes its slot. Its run time leaves out what it stood frozen; phases do not."""

    def __init__(self) -> None:
        self.began_at = math.inf  # by ``time.monotonic``
        self._ran = Stopwatch()
        self._measured_s: float | None = None  # as measured by who ran it
        self._has_stood = False
        self._seated_at = _now()
        self._inputs_s: float | None = 0.0  # None, as below: not yet
        self._began_s: float | None = 0.0
        self._ended_s = 0.0

    @property
    def wall_s(self) -> float:
        """Return how long it ran until now, or until its end."""
        return self._ran.elapsed_s if self._measured_s is None else self._measured_s

    @property
    def in_slot_s(self) -> float:
        """Return for how long it has its slot."""
        return _now() - self._seated_at

    def phases(self, *, has_outputs: bool) -> Phases | None:
        """Return when its phases were over, once its outputs are collected.

        None if it began at once, was never frozen, and left none.
        """
        if self._inputs_s == 0.0 and not self._has_stood and not has_outputs:
            return None
        end = self._ended_s
        inputs_s = end if self._inputs_s is None else self._inputs_s
        began_s = end if self._began_s is None else self._began_s
        frozen_s = max(0.0, end - began_s - self._ran.elapsed_s) if self._has_stood else 0.0
        return Phases(inputs_s, began_s, end, frozen_s, max(end, self.in_slot_s) if has_outputs else 0.0)

    def sets_up(self) -> None:
        """Note that it waits for its inputs, or its software."""
        self._inputs_s = self._began_s = None

    def has_inputs(self) -> None:
        """Note that all it waited for is there."""
        self._inputs_s = self.in_slot_s

    def begins(self, limit_s: float | None, on_end: Callable[[], None]) -> None:
        """Note that its process starts now; ``on_end`` is called once it has run for so long."""
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
        self._has_stood = True
        self._ran.stop()

    def thaw(self) -> None:
        """Let the run time go on."""
        self._ran.start()

    def stop(self) -> None:
        """End the run time: its last process is gone."""
        self._ran.stop()

    def ends(self, elapsed_s: float | None) -> None:
        """Note that its last process is gone, after so long as measured by who ran it; None: not measured."""
        self._ran.stop()
        self._ended_s = self.in_slot_s
        self._measured_s = None if self._has_stood else elapsed_s
