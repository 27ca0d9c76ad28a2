"""Frozen attempts that hold units of limits are preempted after ``limit_grace_s`` if tasks wait for these units.

Their workers give them back, with their last checkpoints, which uses up no attempt. A worker ignores the order for an
attempt that continues. Until it ends, a preempted attempt holds its units.
"""

from __future__ import annotations

from collections.abc import Set
from math import inf

from loopline_master.core.kernel.door.mechanism import Purpose
from loopline_master.core.kernel.entities import Attempt, Job, Worker
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
        for (name, whom), (wanted, least) in sorted(self._wanted(overdue).items()) if overdue else ():
            held = self._counts.holders_by(name, whom)
            allowed = dict(self._counts.limits_on(name, whom))[whom]
            taken = sum(units for number, units in held if not self._is_leaving(number)) - allowed
            if sum(units for number, units in held if number in overdue) < taken + least:
                continue  # attempts that go on hold too many units for a single task
            missing = taken + wanted
            for number, units in sorted(held, key=lambda one: (-attempts[one[0]].dispatched_at, one[0])):
                if missing > 0 and number in overdue:
                    overdue.discard(number)
                    attempts[number].reason, attempts[number].sent = OTHERS_WAIT, 0
                    self._state.put(attempts[number])
                    missing -= units

    def _is_leaving(self, number: AttemptId) -> bool:
        attempt = self._state.attempts[number]
        return attempt.reason == OTHERS_WAIT or attempt.state is AttemptState.CANCELLING

    def _wanted(self, overdue: Set[AttemptId]) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the units that tasks wait for, by the name and user of the exhausted limit: of all, of the least.

        A free slot counts for one task only.
        """
        wanted, requirements = dict[tuple[str, str], tuple[int, int]](), self._state.index.requirements
        names = {name for name, held in self._counts.holders.items() if overdue & held.keys()}
        room = {name: -free for free, _, name in self._state.index.slots.idle.order}
        keys = [key for key in requirements.out if any(name in names for name, _ in limits_of(key))]
        for key in sorted(keys, key=lambda key: min(requirements.jobs[key])):
            if not self._counts.wait_for_limits(key):
                continue
            ready = self._ready(key)
            most = len(overdue) if self._state.settings.user_slots is None else 1  # a veto speaks of one start
            tasks = min(most, sum(count for _, count in ready))
            tasks = tasks and self._places(key, ready[0][0], tasks, room)
            for name, units in limits_of(key) if tasks else ():
                limits = self._counts.limits_on(name, owner_of(key))
                exceeded = [whom for whom, allowed in limits if self._counts.used[name, whom] + units > allowed]
                if exceeded:
                    of = name, exceeded[-1]  # the user's own limit, if that is exceeded
                    total, least = wanted.get(of, (0, units))
                    wanted[of] = total + tasks * units, min(least, units)
        return wanted

    def _ready(self, key: RequirementClass) -> list[tuple[Job, int]]:
        """Return the jobs of a class that only wait for units, with the number of tasks that may start."""
        found, index = list[tuple[Job, int]](), self._state.index
        for number in sorted(index.requirements.jobs[key]):
            job = self._state.jobs[number]
            if index.is_ready(job) and not (job.paused or job.stalled or index.is_held(job)):
                count = self._state.fresh[number].count + index.ready_sets[number].to_retry.count
                most = inf if job.max_running is None else job.max_running - self._counts.running[number]
                found.append((job, int(min(count, most))))
        return found

    def _places(self, key: RequirementClass, job: Job, most: int, room: dict[str, int]) -> int:
        """Take room for tasks of a class from the free slots, and return their number, up to ``most``.

        At least one, if some worker could take it, for a class with wide tasks: a worker is reserved for it later.
        """
        requirements, count = self._state.index.requirements, 0
        able = requirements.trusted[key] or requirements.able[key]
        task = self._state.fresh[job.id].first_after(0) or self._state.index.ready_sets[job.id].to_retry.starts[0]
        for name in room:
            if count >= most or name not in able or requirements.units.is_short(name, key):
                continue
            if self._state.wings.veto(job, task, self._state.workers[name], Purpose.START) is None:
                here = min(room[name] // slots_of(key), most - count)
                room[name] -= here * slots_of(key)
                count += here
        return max(count, min(1, len(able)) if job.is_wide else 0)
