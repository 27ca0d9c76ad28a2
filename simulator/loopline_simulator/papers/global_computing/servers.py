"""Servers with different ways to share their time among jobs. All are busy while there is work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from loopline_simulator.kernel import Appointment, Kernel

Done = Callable[[], None]


class Server(ABC):
    """A server of ``speed`` Mop per second; work is in Mop."""

    def __init__(self, kernel: Kernel, speed: float) -> None:
        self.speed = speed
        self.jobs = 0  # running and waiting
        self._kernel = kernel
        self._unfinished = 0.0  # Mop, as of _seen
        self._busy = self._seen = 0.0

    def accept(self, work: float, done: Done) -> None:
        """Accept ``work`` and call ``done`` when it is finished."""
        self._account()
        self._unfinished += work
        self.jobs += 1
        self._begin(work, done)

    @property
    def unfinished_s(self) -> float:
        """Time that the server would be busy without further jobs."""
        self._account()
        return self._unfinished / self.speed

    @property
    def busy_s(self) -> float:
        """Time that the server has been busy until now."""
        self._account()
        return self._busy

    @abstractmethod
    def _begin(self, work: float, done: Done) -> None: ...

    def _finish(self, done: Done) -> None:
        self._account()
        self.jobs -= 1
        done()

    def _account(self) -> None:
        passed = self._kernel.now - self._seen
        self._seen = self._kernel.now
        if self.jobs:
            self._busy += passed
            self._unfinished = max(0.0, self._unfinished - passed * self.speed)
        else:
            self._unfinished = 0.0


class FirstComeServer(Server):
    """A server that runs its jobs one after another."""

    def __init__(self, kernel: Kernel, speed: float) -> None:
        super().__init__(kernel, speed)
        self._queue: deque[tuple[float, Done]] = deque()

    def _begin(self, work: float, done: Done) -> None:
        self._queue.append((work, done))
        if len(self._queue) == 1:
            self._start()

    def _start(self) -> None:
        self._kernel.at(self._kernel.now + self._queue[0][0] / self.speed, self._end)

    def _end(self) -> None:
        _, done = self._queue.popleft()
        if self._queue:
            self._start()
        self._finish(done)


class RoundRobinServer(Server):
    """A server that runs its jobs in turn, each for at most ``quantum_s``."""

    def __init__(self, kernel: Kernel, speed: float, quantum_s: float) -> None:
        super().__init__(kernel, speed)
        self._quantum = quantum_s * speed
        self._queue: deque[tuple[float, Done]] = deque()

    def _begin(self, work: float, done: Done) -> None:
        self._queue.append((work, done))
        if len(self._queue) == 1:
            self._start()

    def _start(self) -> None:
        turn = min(self._quantum, self._queue[0][0])
        self._kernel.at(self._kernel.now + turn / self.speed, self._end)

    def _end(self) -> None:
        left, done = self._queue.popleft()
        left -= self._quantum
        if left > 0:
            self._queue.append((left, done))
        if self._queue:
            self._start()
        if left <= 0:
            self._finish(done)


class ProcessorSharingServer(Server):
    """A server that runs all jobs at once, each with an equal share of the speed."""

    def __init__(self, kernel: Kernel, speed: float) -> None:
        super().__init__(kernel, speed)
        self._attained, self._as_of = 0.0, 0.0  # work attained by a job that was present from the start
        self._running: list[tuple[float, int, Done]] = []  # heap, by the work attained at the end
        self._begun = 0
        self._next = Appointment(lambda: None)

    def _begin(self, work: float, done: Done) -> None:
        self._attain()
        self._begun += 1
        heappush(self._running, (self._attained + work, self._begun, done))
        self._plan()

    def _attain(self) -> None:
        now = self._kernel.now
        if self._running:
            self._attained += (now - self._as_of) * self.speed / len(self._running)
        self._as_of = now

    def _plan(self) -> None:
        self._next.cancel()
        if self._running:
            left = max(0.0, self._running[0][0] - self._attained)
            self._next = self._kernel.at(self._kernel.now + left * len(self._running) / self.speed, self._end)

    def _end(self) -> None:
        self._attain()
        self._attained, _, done = heappop(self._running)
        self._plan()
        self._finish(done)
