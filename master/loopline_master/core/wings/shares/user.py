"""User: a person's account of their tasks' slot time, which fades."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log


@dataclass(slots=True)
class User:
    """Account of a person who has ever submitted a job, as one row."""

    name: str
    share: float = 1.0  # set by the operator; users who all want the whole grid get slots in this proportion
    usage: float = 0.0  # slot-seconds until ``usage_at``, GPUs included; half fades in share_half_life_s
    usage_at: float = 0.0  # seconds since 1970
    at_work: int = 0  # slots in use since then, without frozen attempts
    charged: int = 0  # the same, and the slots that their GPUs count as
    pointer: int = 0  # the user's turn used last (round robin)

    def usage_now(self, now: float, half_life_s: float) -> float:
        """Return the faded slot-seconds at this time: u' = slots charged - u ln 2 / half-life, in closed form."""
        rate = log(2.0) / half_life_s
        kept = exp(-rate * max(0.0, now - self.usage_at))
        return self.usage * kept + self.charged * (1.0 - kept) / rate

    def charge(self, slots: int, more: int, now: float, half_life_s: float) -> None:
        """Bring the account up to ``now``, and charge that many more slots from then on, and ``more`` for GPUs."""
        self.usage, self.usage_at = self.usage_now(now, half_life_s), now
        self.at_work += slots
        self.charged += slots + more
