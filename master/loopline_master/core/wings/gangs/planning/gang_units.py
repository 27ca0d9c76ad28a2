"""Units that waiting gangs need: of resources on each of their workers, and of limits for all members together.

Plans take the units of resources into account. A gang is planned only on workers that are expected to have its units
left at its start, and a worker has at most one plan for each resource. Other tasks leave a planned gang its units as
they leave it its slots. Plans of gangs with units are never promises, and held gangs have none.

A planned gang holds no unit of a limit. If all its workers are free at its start, but a limit is used up, units are
set aside for it (``Plan.sets_aside``). Of the gangs that need a limit which is used up, only the first in turn has a
plan (precedence.py). A gang has no plan while nothing can be set aside: if its limits never allow it, units are set
aside for another job, holders have no expected end, or the latest holder is a gang that had units set aside, so that
other tasks have a turn. So a gang keeps workers free only while it waits for attempts that end, and these wait for
nothing (docs/design/hold.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import inf

from loopline_master.core.estimates.holder_estimate import latest_reserved, limits_suffice_later
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.requirement_class import limits_of, resources_of
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.index.units import Turn
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.planning.grid_horizons import busy_of
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_shared.model import AttemptId
from loopline_shared.protocol.gpus import COMPUTER, GPU

_NO_NAMES = frozenset[str]()


class GangUnits:
    """Workers by the units that a gang needs, and the limits with units set aside for gangs."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._aside: dict[int, RequirementClass] = {}  # jobs whose next gang has units of its limits set aside

    def restore(self, plans: Iterable[Plan]) -> None:
        """Set units aside as the stored plans say."""
        for plan in plans:
            if plan.sets_aside:
                self._set_aside(plan.job, self._state.index.requirements.key_of(self._state.jobs[plan.job]))

    # --- resources --------------------------------------------------------------------------------------------

    def eligible(self, key: RequirementClass) -> Collection[str]:
        """Return the workers that have the units of a class left."""
        workers = self._state.index.requirements.with_resources(key)
        return self._first(workers) if _needs_gpus(key) else workers

    def eligible_later(self, key: RequirementClass) -> Mapping[int, Collection[str]]:
        """Return workers that have too few units left now, by the time when running work leaves them enough."""
        if not resources_of(key):
            return {}
        requirements, found = self._state.index.requirements, defaultdict[int, list[str]](list)
        lacking = requirements.lacking_resources(key)
        for name in sorted(self._first(lacking) if _needs_gpus(key) else lacking):
            free_at = self._free_at(self._state.workers[name], key)
            if 0 < free_at < inf and requirements.units.would_suffice(name, key):
                found[int(free_at)].append(name)
        return found

    def _free_at(self, worker: Worker, key: RequirementClass) -> float:
        """Return when a worker's running attempts have left the units of a class, by the ends in its horizon."""
        here = self._state.index.attempts.of_worker.get(worker.name, {})
        ends: dict[AttemptId, float] = {number: busy_of(self._state, one).end for number, one in here.items()}
        free_at = self._state.index.requirements.units.free_after(worker.name, key, ends)
        if any(name == COMPUTER for name, _, _ in resources_of(key)):
            is_whole = worker.offered >= worker.facts.slots
            free_at = max(free_at, max(ends.values(), default=0.0)) if is_whole else inf
        return free_at

    def _first(self, workers: Iterable[str]) -> list[str]:
        """Return one worker for each GPU, the first by name: two members must not get the same GPU."""
        return [name for name in workers if self._state.index.requirements.units.is_first(name)]

    def rivals(self, job: Job, worker: Worker, plans: Iterable[Plan]) -> set[int]:
        """Return the jobs of plans on a worker that would lack units there after a start of this job."""
        requirements = self._state.index.requirements
        if not requirements.counts_units:
            return set()
        key, key_of, jobs = requirements.key_of(job), requirements.key_of, self._state.jobs
        return {one.job for one in plans if requirements.units.are_too_few(worker.name, key, key_of(jobs[one.job]))}

    # --- limits -----------------------------------------------------------------------------------------------

    def has_limits(self, job: Job) -> bool:
        """True if a gang may take the units of its limits now."""
        requirements = self._state.index.requirements
        return requirements.key_of(job) not in requirements.out

    def lacks(self, key: RequirementClass) -> tuple[frozenset[str], bool]:
        """Return the limits of a class if they are used up, and True if nothing may be set aside for it now.

        No limits if it cannot wait for them: they never allow it, or too few holders have an expected end.
        """
        requirements = self._state.index.requirements
        if key not in requirements.out:
            return _NO_NAMES, False
        if not requirements.units.wait_for_limits(key) or not limits_suffice_later(self._state, key):
            return _NO_NAMES, True
        return frozenset(name for name, _ in limits_of(key)), self._must_pass(key)

    def must_leave(self, names: Collection[str], turn: Turn) -> bool:
        """True if a wide task whose turn is earlier needs one of these limits."""
        of_wide = self._state.index.requirements.units.of_wide
        return bool(of_wide) and any(of_wide[name] < turn for name in names if name in of_wide)

    def note_turns(self, turns: Mapping[str, Turn]) -> None:
        """Let later wide tasks leave limits to the gangs that lack them."""
        self._state.index.requirements.units.of_gangs = turns

    def try_to_set_aside(self, plan: Plan, job: Job) -> None:
        """Set units aside for a due gang that lacks units of its limits, unless that must wait."""
        key = self._state.index.requirements.key_of(job)
        lacks, must_pass = self.lacks(key)
        if lacks and not must_pass and key not in self._aside.values():
            self._set_aside(plan.job, key)
            plan.sets_aside = True
            self._state.put(plan)

    def release(self, plans: Mapping[int, Plan]) -> None:
        """Release the units set aside for gangs that have started, or have ceased to be due."""
        requirements = self._state.index.requirements
        for number, key in list(self._aside.items()):
            plan, job = plans.get(number), self._state.jobs.get(number)
            is_due = plan is not None and plan.start is not None and plan.start <= self._state.now
            is_same = job is not None and requirements.key_of(job) == key
            if is_due and is_same and limits_suffice_later(self._state, key):
                continue
            del self._aside[number]
            requirements.units.set_aside(key, ends=True)
            self._limits_change(key)
            if plan is not None:
                plan.sets_aside = False
                self._state.put(plan)

    def note_started(self, plan: Plan, job: Job) -> None:
        """Note whether a gang has started with units set aside for its class: others may take the next free ones."""
        has_aside = self._state.index.requirements.key_of(job) in self._aside.values()
        job.by_reservation = plan.task if has_aside else 0
        self._state.put(job)

    def _set_aside(self, job: int, key: RequirementClass) -> None:
        self._aside[job] = key
        self._state.index.requirements.units.set_aside(key)
        self._limits_change(key)

    def _limits_change(self, key: RequirementClass) -> None:
        for name, _ in limits_of(key):
            self._state.index.requirements.units_change(name)

    def _must_pass(self, key: RequirementClass) -> bool:
        """True if units are set aside for another class, or others have a turn first."""
        units = self._state.index.requirements.units
        if units.are_set_aside(key):
            return True
        return key not in self._aside.values() and any(self._was_gang(holders) for _, holders in units.shortages(key))

    def _was_gang(self, holders: Iterable[tuple[AttemptId, int]]) -> bool:
        """True if a gang took units of a limit last that were set aside. Other tasks may take the next ones then."""
        latest = latest_reserved(self._state, holders)
        return latest is not None and latest.nodes > 1


def _needs_gpus(key: RequirementClass) -> bool:
    return any(name == GPU for name, _, _ in resources_of(key))
