"""The network between the master and its machines, in virtual time.

A link is like TCP: frames sent one way arrive in order, each after its own delay, so that frames of different links
overtake one another. Unlike TCP, single frames are lost and duplicated too: the sessions notice it by their numbers.
A machine may be cut off for a while: frames sent during that time arrive later.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from loopline_simulator.full.grid_world import GridWorld
from loopline_simulator.full.machine import Link
from loopline_simulator.kernel import Kernel
from loopline_simulator.streams import Generator


@dataclass(frozen=True, slots=True)
class Conditions:
    """Delays and losses on every link."""

    delay_s: float = 0.0  # at least
    jitter_s: float = 0.0  # on average, on top (exponential)
    loss: float = 0.0  # share of frames that never arrive
    duplication: float = 0.0  # share of frames that arrive twice


class FrameListener(Protocol):
    """Listener for the arrival of frames."""

    def master_heard(self) -> None: ...
    def machine_heard(self, name: str) -> None: ...


@dataclass(slots=True)
class _Flow:
    """Frames under way in one direction of one link."""

    frames: deque[bytes]  # under way: the link's own queue
    expected: int = 0  # arrivals scheduled, including frames lost to a cut
    last_at: float = 0.0  # when the last of them arrives


class Network:
    """Network that delivers every frame in due time. Call ``forward`` after sending frames."""

    def __init__(
        self,
        kernel: Kernel,
        world: GridWorld,
        ends: FrameListener,
        conditions: Conditions,
        randoms: Mapping[str, Generator],
    ) -> None:
        """Take the stream of each machine's links in ``randoms``, so that links do not influence each
        other's fate.
        """
        self._kernel, self._world, self._ends = kernel, world, ends
        self._conditions, self._randoms = conditions, randoms
        self._flows: dict[tuple[int, bool], _Flow] = {}  # by link, and whether it goes up
        self._healed_at: dict[str, float] = {}  # by machine
        self.counts: Counter[str] = Counter()

    def forward(self, link: Link) -> None:
        """Schedule the arrival of frames sent on the link; safe to call when there are none."""
        for is_up, frames in ((True, link.up), (False, link.down)):
            flow = self._flows.setdefault((link.number, is_up), _Flow(frames))
            while flow.expected < len(frames):
                self._send(link, is_up, flow)

    def partition(self, name: str, seconds: float) -> None:
        """Cut a machine off for this many seconds."""
        self._healed_at[name] = max(self._healed_at.get(name, 0.0), self._kernel.now + seconds)

    def _send(self, link: Link, is_up: bool, flow: _Flow) -> None:
        delay_s = self._conditions.delay_s
        if self._conditions.jitter_s:
            delay_s += float(self._randoms[link.name].exponential(self._conditions.jitter_s))
        flow.expected += 1
        flow.last_at = max(flow.last_at, self._kernel.now + delay_s)
        self.counts["frames"] += 1
        self._arrive_at(flow.last_at, link, is_up)

    def _arrive_at(self, time: float, link: Link, is_up: bool) -> None:
        self._kernel.at(time, lambda: self._arrive(link, is_up))

    def _arrive(self, link: Link, is_up: bool) -> None:
        """Deliver the oldest frame of the link: frames of one link arrive in order."""
        healed_at = self._healed_at.get(link.name, 0.0)
        if healed_at > self._kernel.now:
            self._arrive_at(healed_at, link, is_up)
            return
        flow = self._flows[link.number, is_up]
        flow.expected -= 1
        if flow.frames:
            self._hand_over(link, is_up)

    def _hand_over(self, link: Link, is_up: bool) -> None:
        lost, twice = self._chance(link, "loss"), self._chance(link, "duplication")
        self.counts["lost"] += lost
        self.counts["duplicated"] += twice and not lost
        if is_up:
            self._world.now = self._kernel.now  # a Report that is kept back counts from here
            self._world.arrive_up(link, twice=twice, lost=lost)
            self.forward(link)  # a refused frame closes the link
            self._ends.master_heard()
        elif self._world.machines[link.name].link is link:
            self._world.deliver_down(link.name, twice=twice, lost=lost)
            self.forward(link)
            if not lost:
                self._ends.machine_heard(link.name)

    def _chance(self, link: Link, kind: str) -> bool:
        share: float = getattr(self._conditions, kind)
        return share > 0 and bool(self._randoms[link.name].random() < share)
