"""Owners who come and go, by laws that were fitted to recorded desktops.

A host is connected for a time drawn from one law and away for a time drawn from another, over and over. The studies
find Weibull laws of shape below 1: the longer a machine has been there, the longer it will stay. So a run begins
after some cycles of each host, not at the beginning of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from loopline_simulator.fast.availability import Interval
from loopline_simulator.streams import Generator, stream

_CYCLES = 30
"""Mean cycles of a host before time 0, so that it is in its long-run state by then."""


@dataclass(frozen=True, slots=True)
class WeibullLaw:
    """A duration in seconds: P(longer than t) = exp(-(t / scale) ** shape); shape 1 is the exponential law."""

    shape: float
    scale: float

    @property
    def mean(self) -> float:
        return self.scale * math.gamma(1 + 1 / self.shape)

    def draw(self, random: Generator) -> float:
        return self.scale * float(random.weibull(self.shape))


@dataclass(frozen=True, slots=True)
class Churn:
    """Laws of stays and absences, and for how long a host that went is believed to be at work."""

    stay: WeibullLaw
    away: WeibullLaw
    lease_s: float = 30.0  # the live master's default

    @property
    def share_there(self) -> float:
        """Long-run share of the time that a host is connected."""
        return self.stay.mean / (self.stay.mean + self.away.mean)

    def stays(self, seed: int, host: str) -> Iterator[Interval]:
        """Yield the stays of a host from time 0 on, without end."""
        random = stream(seed, "stays", host)
        now = -_CYCLES * (self.stay.mean + self.away.mean) * float(random.random())
        while True:
            end = now + self.stay.draw(random)
            if end > 0:
                yield Interval(max(0.0, now), end)
            now = end + self.away.draw(random)


CONDOR = WeibullLaw(0.49, 2403.0)
"""Stays in a Condor pool until the owner is back (Nurmi, Brevik and Wolski, Euro-Par 2005): mean 83 minutes."""
STUDENT_LAB = WeibullLaw(0.545, 275_599.0)
"""Time between reboots in a student lab, CSIL (the same study): mean 5.5 days."""
