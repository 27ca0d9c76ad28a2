"""Accounts of users: their slots in use and their past use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

from loopline_master.core.kernel.entities import Attempt, Job
from loopline_master.core.kernel.index.attempts import is_at_work, is_prefetched, milliseconds
from loopline_master.core.wings.shares.user import User

_MOST_IN_HAND_MS = 60_000
"""Upper bound of an attempt's immediate charge, and the charge if its expected time is unknown.

Attempts are charged at once with their expected time, so that slots that become free together go to several users.
"""


@dataclass(slots=True)
class Accounts:
    """All users by name. Accounts are kept while there are several users and the settings demand it."""

    users: dict[str, User]
    are_kept: bool = False
    half_life_s: float = 1.0
    gpu_cores: int = 0  # slots that a GPU counts as
    in_hand_ms: dict[str, int] = field(default_factory=dict)  # by user: expected use of their attempts under way
    ahead: dict[str, int] = field(default_factory=dict)  # by user: slots of prefetched attempts, GPUs included

    @property
    def are_shared(self) -> bool:
        """True if accounts are kept because there are several users, not only because slots are limited."""
        return self.are_kept and len(self.users) > 1

    def open(self, attempts: Iterable[tuple[Job, Attempt, int]], now: float) -> list[User]:
        """Charge users for these attempts (job, attempt, role) alone. Return the users whose charge changes."""
        at_work, for_gpus, self.in_hand_ms, self.ahead = Counter[str](), Counter[str](), {}, {}
        for job, attempt, role in attempts if self.are_kept else ():
            owner = job.owner
            at_work[owner] += is_at_work(role) * attempt.slots
            for_gpus[owner] += is_at_work(role) * self.slots_for_gpus(job)
            self.in_hand_ms[owner] = self.in_hand_ms.get(owner, 0) + in_hand_ms(attempt, role)
            self.ahead[owner] = self.ahead.get(owner, 0) + is_prefetched(role) * self._charged(job, attempt)
        charges = {name: (at_work[name], at_work[name] + for_gpus[name]) for name in self.users}
        changed = [user for name, user in self.users.items() if (user.at_work, user.charged) != charges[name]]
        for user in changed:
            slots, charged = charges[user.name]
            more = charged - user.charged - (slots - user.at_work)
            user.charge(slots - user.at_work, more, now, self.half_life_s)
        return changed

    def _charged(self, job: Job, attempt: Attempt) -> int:
        """Return the slots that an attempt counts as."""
        return attempt.slots + (self.slots_for_gpus(job) if self.gpu_cores else 0)

    def slots_for_gpus(self, job: Job) -> int:
        """Return the slots that the GPUs of an attempt count as."""
        return ceil(self.gpu_cores * job.spec.requires.gpus)

    def charge(self, job: Job, attempt: Attempt, before: int, after: int, now: float) -> User | None:
        """Note an attempt's change of role. Return its user if their charge per second changes."""
        owner = job.owner
        more_ms = in_hand_ms(attempt, after) - in_hand_ms(attempt, before)
        self.in_hand_ms[owner] = self.in_hand_ms.get(owner, 0) + more_ms
        if more_ahead := is_prefetched(after) - is_prefetched(before):
            self.ahead[owner] = self.ahead.get(owner, 0) + more_ahead * self._charged(job, attempt)
        change = is_at_work(after) - is_at_work(before)
        if not change:
            return None
        user, more = self.users[owner], change * self.slots_for_gpus(job) if self.gpu_cores else 0
        user.charge(change * attempt.slots, more, now, self.half_life_s)
        return user

    def rank(self, name: str, now: float) -> float:
        """Return the user's use for their share, including their attempts in hand; the least is next."""
        user = self.users[name]
        return (user.usage_now(now, self.half_life_s) + self.in_hand_ms.get(name, 0) / 1e3) / user.share


def in_hand_ms(attempt: Attempt, role: int) -> int:
    """Return the use that an attempt of this role adds beyond its user's charge, in slot-milliseconds.

    An attempt that waits at its worker counts in full, because a policy may prefetch many.
    """
    if not (is_prefetched(role) or is_at_work(role)):
        return 0
    expected_ms = milliseconds(attempt.expected_s) if attempt.expected_s else _MOST_IN_HAND_MS
    return attempt.slots * (expected_ms if is_prefetched(role) else min(expected_ms, _MOST_IN_HAND_MS))
