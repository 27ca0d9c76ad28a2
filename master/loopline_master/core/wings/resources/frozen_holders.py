"""Frozen attempts that hold units of limits are preempted after ``limit_grace_s`` if tasks wait for these units.

Their workers give them back, with their last checkpoints, which uses up no attempt. A worker ignores the order for an
attempt that continues. Until it ends, a preempted attempt holds its units.
"""

from __future__ import annotations

from collections import Counter

from loopline_master.core.kernel.entities import Attempt, Worker
from loopline_master.core.kernel.index.requirement_class import limits_of, owner_of, slots_of
from loopline_master.core.kernel.index.units import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_shared.model import AttemptId, AttemptState

OTHERS_WAIT = "it is frozen, and others wait for units that it holds"
"""Reason of a frozen attempt that its worker must give back."""


class FrozenHolders:
    """The frozen attempts of jobs with needs. Those that hold no unit of a limit are never preempted."""

    def __init__(self, state: State, counts: CountedUnits) -> None:
        self._since: dict[AttemptId, float] = {}
        self._state, self._counts = state, counts

    def note(self, attempt: Attempt) -> None:
        """Note that an attempt was frozen, thawed or has ended."""
        if attempt.state is AttemptState.FROZEN:
            self._since[attempt.id] = attempt.freezes[-1][0]
        elif self._since.pop(attempt.id, None) is not None:
            attempt.reason = "" if attempt.reason == OTHERS_WAIT else attempt.reason

    @property
    def due_at(self) -> float | None:
        """Return when the next attempt has been frozen for ``limit_grace_s``; None if there is none."""
        ends = (since + self._state.settings.limit_grace_s for since in self._since.values())
        return min((end for end in ends if end > self._state.now), default=None)

    def preempted_on(self, worker: Worker) -> tuple[AttemptId, ...]:
        """Return the attempts that a worker must give back."""
        attempts = (self._state.attempts[number] for number in self._since)
        return tuple(one.id for one in attempts if one.reason == OTHERS_WAIT and one.worker == worker.name)

    def preempt(self) -> None:
        """Preempt as many attempts as there are tasks that could start with their units now."""
        frozen_by = self._state.now - self._state.settings.limit_grace_s
        attempts = self._state.attempts
        overdue = {
            number
            for number, since in self._since.items()
            if since <= frozen_by and attempts[number].reason != OTHERS_WAIT
        }
        if not overdue:
            return
        for (name, whom), wanted in sorted(self._wanted(len(overdue)).items()):
            held = self._counts.holders_by(name, whom)
            allowed = dict(self._counts.limits_on(name, whom))[whom]
            missing = wanted + sum(units for number, units in held if not self._is_leaving(number)) - allowed
            for number, units in sorted(held, key=lambda one: (-attempts[one[0]].dispatched_at, one[0])):
                if missing > 0 and number in overdue:
                    overdue.discard(number)
                    attempts[number].reason, attempts[number].sent = OTHERS_WAIT, 0
                    self._state.put(attempts[number])
                    missing -= units

    def _is_leaving(self, number: AttemptId) -> bool:
        attempt = self._state.attempts[number]
        return attempt.reason == OTHERS_WAIT or attempt.state is AttemptState.CANCELLING

    def _wanted(self, most: int) -> Counter[tuple[str, str]]:
        """Return the units that tasks wait for, by the name and user of the exhausted limit."""
        wanted, requirements = Counter[tuple[str, str]](), self._state.index.requirements
        for key in requirements.out:
            if limits_of(key) and self._counts.wait_for_limits(key):
                tasks = min(self._tasks_to_start(key, most), self._places(key, most))
                for name, units in limits_of(key) if tasks else ():
                    limits = self._counts.limits_on(name, owner_of(key))
                    exceeded = [whom for whom, allowed in limits if self._counts.used[name, whom] + units > allowed]
                    if exceeded:
                        wanted[name, exceeded[-1]] += tasks * units  # the user's own limit, if that is exceeded
        return wanted

    def _tasks_to_start(self, key: RequirementClass, most: int) -> int:
        """Return the number of tasks of a class that only wait for units, up to ``most``."""
        count, index = 0, self._state.index
        for number in sorted(index.requirements.jobs[key]):
            job = self._state.jobs[number]
            if index.is_ready(job) and not (job.paused or job.stalled or index.is_held(job)):
                count += self._state.fresh[number].count + index.ready_sets[number].to_retry.count
            if count >= most:
                break
        return min(count, most)

    def _places(self, key: RequirementClass, most: int) -> int:
        """Return the number of tasks of a class that there is room for now, up to ``most``.

        At least one, if some worker could take it, for a class with wide tasks: a worker is reserved for it later.
        """
        requirements, count = self._state.index.requirements, 0
        able = requirements.trusted[key] or requirements.able[key]
        for free, _, name in self._state.index.slots.idle.order:
            if name in able and not requirements.units.is_short(name, key):
                count += -free // slots_of(key)
            if count >= most:
                return most
        is_wide = any(self._state.jobs[number].is_wide for number in requirements.jobs[key])
        return max(count, min(1, len(able)) if is_wide else 0)
