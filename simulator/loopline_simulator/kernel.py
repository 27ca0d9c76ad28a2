"""Virtual time: calls run in order of their time; calls due at the same time run in the order they were made."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Call = Callable[[], None]


class Appointment:
    """A call that is due later and can be cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        self.call = None


class Kernel:
    """A heap of (time, sequence, call). The order of calls is deterministic."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self.events = 0  # calls made
        self._made = 0
        self._heap: list[tuple[float, int, Appointment]] = []

    def at(self, time: float, call: Call) -> Appointment:
        """Schedule ``call`` at ``time``. Raises ValueError if ``time`` is in the past or not a number."""
        if not time >= self.now:
            raise ValueError(f"{time} is before now, {self.now}")
        appointment = Appointment(call)
        self._made += 1
        heappush(self._heap, (time, self._made, appointment))
        return appointment

    def run(self, until: float = float("inf")) -> None:
        """Run all calls due up to and at ``until``."""
        while self._heap and self._heap[0][0] <= until:
            time, _, appointment = heappop(self._heap)
            if appointment.call is not None:
                self.now = time
                self.events += 1
                appointment.call()
