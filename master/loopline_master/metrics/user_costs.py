"""Cost of each user to the master: the time of steps that are about their jobs, and their requests.

A step's time is shared among the users whose tasks, attempts and jobs it changed, by the number of these. Steps that
concern only workers have no user.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.state import State

NOBODY = ""
"""Whose the time is that is no user's."""
_job_of = itemgetter(0)  # of the id of a task or an attempt
_MINUTES = 60
_MOST_USERS = 1000
"""Of more in one minute the others are counted as nobody."""


@dataclass(slots=True)
class Cost:
    """Cost of one user."""

    step_s: float = 0.0
    requests: int = 0


@dataclass(slots=True)
class _Minute:
    minute: int
    of_user: dict[str, Cost] = field(default_factory=dict)

    def of(self, user: str) -> Cost:
        if user not in self.of_user and len(self.of_user) >= _MOST_USERS:
            user = NOBODY
        return self.of_user.setdefault(user, Cost())


class UserCosts:
    """The costs of the last hour, kept by the minute."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._minutes: deque[_Minute] = deque(maxlen=_MINUTES)

    def charge_step(self, effects: Effects, state: State, took_s: float) -> dict[str, float]:
        """Share a step's time among the users whom it is about; return each one's part."""
        rows = Counter(effects.jobs.keys())  # a job's own, and those of its tasks and attempts
        rows.update(map(_job_of, chain(effects.tasks, effects.attempts)))
        parts: dict[str, float] = {} if rows else {NOBODY: took_s}
        row_s = took_s / (sum(rows.values()) or 1)
        for number, count in rows.items():
            job = effects.jobs.get(number) or state.jobs.get(number)
            user = job.owner if job else NOBODY
            parts[user] = parts.get(user, 0.0) + row_s * count
        minute = self._minute()
        for user, part in parts.items():
            minute.of(user).step_s += part
        return parts

    def count_request(self, user: str) -> None:
        """Count a request of a user."""
        self._minute().of(user).requests += 1

    def last_hour(self) -> dict[str, Cost]:
        """Return the costs of the last hour, by user."""
        since = self._now() - _MINUTES
        sums: dict[str, Cost] = {}
        for minute in self._minutes:
            for user, cost in minute.of_user.items() if minute.minute > since else ():
                total = sums.setdefault(user, Cost())
                total.step_s += cost.step_s
                total.requests += cost.requests
        return sums

    def _minute(self) -> _Minute:
        now = self._now()
        if not self._minutes or self._minutes[-1].minute != now:
            self._minutes.append(_Minute(now))
        return self._minutes[-1]

    def _now(self) -> int:
        return int(self._clock() // 60)
