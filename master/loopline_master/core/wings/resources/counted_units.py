"""Counted units: limits, and the units that attempts hold while they may be running.

GPUs are units with names: each attempt holds certain ones, and no two attempts hold the same. If a computer runs
several agents, several workers offer its GPUs.

An attempt holds its units from its dispatch until its worker reports that it has ended. A lost attempt keeps them,
because its worker may have fallen silent while the task runs on. So no start ever exceeds a limit. A limit may be
lowered under running attempts: then nothing starts until enough of them have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from math import inf

from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.index.attempts import Attempts, may_be_running
from loopline_master.core.kernel.index.requirement_class import alone_in, limits_of, owner_of, resources_of
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.index.units import Holders, Promised, ResourceNeeds, Units, time_until
from loopline_master.core.wings.resources.limit import EACH_USER, WHOLE_GRID, Limit
from loopline_shared.model import AttemptId
from loopline_shared.parallel import launch_of
from loopline_shared.protocol.gpus import COMPUTER, GPU, WHOLE_GPU, Gpu, GpuKind, by_capability

_MOST_KNOWN = 4096
"""Number of limits and users whose limits are remembered."""
_NOTHING = Counter[str]()
_NOTHING_PROMISED: Promised = {}


class CountedUnits(Units):
    """The units in use, and the limits."""

    def __init__(self, workers: Mapping[str, Worker], jobs: Mapping[int, Job], attempts: Attempts) -> None:
        self.allowed: dict[str, dict[str, int]] = {}  # by the name and user of a limit
        self._limits_on: dict[tuple[str, str], list[tuple[str, int]]] = {}  # ``limits_on``, as far as computed
        self.used = Counter[tuple[str, str]]()  # units of a limit in use, by a user or WHOLE_GRID
        self.running = Counter[int]()  # tasks that may be running, by job with a limit of them
        self._members = Counter[AttemptId]()  # attempts that may be running, by launch of such a job
        self.on_worker: dict[str, Counter[str]] = {}  # units in use of its resources
        self.starts = 0  # attempts that took units as they started ...
        self.starts_beyond = 0  # ... and exceeded a limit in force or the units of their workers; must be 0
        self.counts_computers = False  # a job wants whole computers
        self.are_withheld = False  # attempts of an earlier life of the database may hold some
        self.gpus = Counter[str]()  # thousandths in use of each GPU: more than all violate an invariant
        self.sharing = Counter[str]()  # attempts that have a part of it, or all
        self.holders: dict[str, dict[AttemptId, int]] = {}  # attempts and their units, by limit
        self._kept: dict[str, tuple[RequirementClass, Collection[str]]] = {}  # resources by worker, for one class
        self._aside: dict[str, RequirementClass] = {}  # by limit: the class that has units set aside
        self._offering: dict[str, set[str]] = {}  # workers that offer each GPU
        self._usable: dict[str, list[Gpu]] = {}  # GPUs not withheld by worker, the least capable first
        self._free: dict[str, list[Gpu]] = {}  # those of them that are not wholly in use
        self._workers, self._jobs, self._attempts = workers, jobs, attempts

    @property
    def kept(self) -> Collection[str]:  # type: ignore[override]
        return self._kept.keys()

    @property
    def limits(self) -> Collection[str]:  # type: ignore[override]
        return self.allowed.keys()

    # --- asked by the kernel ----------------------------------------------------------------------------------

    def most(self, name: str, user: str) -> int | None:
        limits = [allowed for _, allowed in self.limits_on(name, user)]
        return min(limits, default=None)

    def are_out(self, key: RequirementClass) -> bool:
        if self.are_withheld:
            return True
        user = owner_of(key)
        for name, units in limits_of(key):
            if self.spare(name, user) < (0 if self._aside and self._aside.get(name) == key else units):
                return True
        return alone_in(key) > 0 and self.spare(alone_in(key), user) < 1

    def spare(self, of: str | int, user: str, promised: Promised = _NOTHING_PROMISED) -> float:
        if isinstance(of, int):
            job = self._jobs.get(of)
            return inf if job is None or job.max_running is None else job.max_running - self.running[of]
        left, theirs = inf, self._aside.get(of)
        if theirs is None and not promised:  # the usual case
            for whom, allowed in self.limits_on(of, user):
                left = min(left, allowed - self.used[of, whom])
            return left
        kept = dict(limits_of(theirs))[of] if theirs else 0
        for whom, allowed in self.limits_on(of, user):
            is_kept = theirs is not None and whom in (WHOLE_GRID, owner_of(theirs))
            left = min(left, allowed - self.used[of, whom] - promised.get((of, whom), 0) - (kept if is_kept else 0))
        return left

    def starts_left(self, key: RequirementClass, promised: Promised) -> float:
        if self.are_withheld:
            return 0
        user, aside = owner_of(key), self._aside
        left = [
            max(0, self.spare(name, user, promised) + (units if aside and aside.get(name) == key else 0)) // units
            for name, units in limits_of(key)
        ]
        if alone_in(key):
            left.append(max(0, self.spare(alone_in(key), user)))
        return min(left, default=inf)

    def is_short(self, worker: str, key: RequirementClass) -> bool:
        kept = self._kept.get(worker)
        if kept and kept[0] != key and any(name in kept[1] for name, _, _ in resources_of(key)):
            return True
        return self.lacks(worker, resources_of(key))

    def lacks(self, worker: str, needs: ResourceNeeds) -> bool:
        used = self.on_worker.get(worker) or _NOTHING
        for name, units, kind in needs:
            if name == GPU:
                if not self._has_free(worker, kind, units):
                    return True
            elif name == COMPUTER:
                if not self._is_empty(worker):
                    return True
            elif used[name] and used[name] + units > self._units_of(worker, name):
                return True
        return False

    def left_of(self, worker: str, name: str) -> Hashable:
        if name == GPU:
            return tuple((gpu.details, self.gpus[gpu.id], self.sharing[gpu.id]) for gpu in self._free_on(worker))
        if name == COMPUTER:
            return self._is_empty(worker)
        used = self.on_worker.get(worker, _NOTHING)[name]
        return self._units_of(worker, name) - used if used else None

    def are_too_few(self, worker: str, key: RequirementClass, other: RequirementClass) -> bool:
        mine, theirs = resources_of(key), resources_of(other)
        if any(name == COMPUTER for name, _, _ in (*mine, *theirs)):
            return True
        for name, units, _ in mine:
            for their_name, their_units, kind in theirs:
                if name == their_name and not self._has_left(worker, name, units + their_units, kind):
                    return True
        return False

    def _has_left(self, worker: str, name: str, units: int, kind: GpuKind) -> bool:
        if name == GPU:
            return self._has_free(worker, kind, units)
        return self._units_of(worker, name) - self.on_worker.get(worker, _NOTHING)[name] >= units

    def is_first(self, worker: str) -> bool:
        return all(min(self._offering[gpu.id]) == worker for gpu in self._gpus_of(worker))

    def would_suffice(self, worker: str, key: RequirementClass) -> bool:
        withheld = self.withheld_on(worker)
        for name, units, kind in resources_of(key):
            if name == GPU:
                usable = (kind.includes(gpu) for gpu in self._gpus_of(worker) if gpu.id not in withheld)
                if sum(usable) < units:
                    return False
            elif name != COMPUTER and self._units_of(worker, name) < units:
                return False
        return True

    def free_after(self, worker: str, key: RequirementClass, left_s: Mapping[AttemptId, float]) -> float:
        longest_s = 0.0
        here = self._attempts.of_worker.get(worker, {})
        for name, units, kind in resources_of(key):
            if name == GPU:
                free_s = self._gpus_after(worker, kind, left_s)
                longest_s = max(longest_s, sorted(free_s)[units - 1] if len(free_s) >= units else inf)
            elif name != COMPUTER:
                missing = units - (self._units_of(worker, name) - self.on_worker.get(worker, _NOTHING)[name])
                holders = [number for number in here if may_be_running(self._attempts.roles[number])]
                ends = ((left_s[number], dict(self._jobs[number.job].needs).get(name, 0)) for number in holders)
                longest_s = max(longest_s, time_until(missing, ends))
        return longest_s

    def _gpus_after(self, worker: str, kind: GpuKind, left_s: Mapping[AttemptId, float]) -> list[float]:
        """Return the time until each GPU that the job accepts is free, in seconds.

        Infinity for a GPU that attempts on another worker hold.
        """
        free_s, parts = dict[str, float](), Counter[str]()
        for number, attempt in self._attempts.of_worker.get(worker, {}).items():
            for gpu in attempt.gpus or ():
                parts[gpu] += may_be_running(self._attempts.roles[number])
                free_s[gpu] = max(free_s.get(gpu, 0.0), left_s[number])
        withheld, usable = self.withheld_on(worker), list[float]()
        for one in self._gpus_of(worker):
            if one.id not in withheld and kind.includes(one):
                is_here = self.sharing[one.id] <= parts[one.id]
                usable.append(0.0 if self._is_free(one, kind) else free_s.get(one.id, 0.0) if is_here else inf)
        return usable

    def keep(self, worker: str, key: RequirementClass | None, names: Collection[str]) -> None:
        if key is None:
            self._kept.pop(worker, None)
        else:
            self._kept[worker] = key, names

    def set_aside(self, key: RequirementClass, *, ends: bool = False) -> None:
        for name, _ in limits_of(key):
            if ends:
                self._aside.pop(name, None)
            else:
                self._aside[name] = key

    def are_set_aside(self, key: RequirementClass) -> bool:
        return any(self._aside.get(name, key) != key for name, _ in limits_of(key))

    def wait_for_limits(self, key: RequirementClass) -> bool:
        if self.are_withheld or (alone_in(key) and self.spare(alone_in(key), owner_of(key)) < 1):
            return False
        user = owner_of(key)
        return not any(units > allowed for name, units in limits_of(key) for _, allowed in self.limits_on(name, user))

    def shortages(self, key: RequirementClass) -> Iterator[tuple[int, Holders]]:
        for name, units in limits_of(key):
            for whom, allowed in self.limits_on(name, owner_of(key)):
                if (missing := self.used[name, whom] + units - allowed) > 0:
                    yield missing, self.holders_by(name, whom)

    def _is_empty(self, worker: str) -> bool:
        """True if the worker offers all of its slots, and no attempt has one or waits for one."""
        known = self._workers[worker]
        return known.offered >= known.facts.slots and not self._attempts.in_hand(worker)

    # --- GPUs -------------------------------------------------------------------------------------------------

    def free_gpus(self, worker: str, kind: GpuKind, count: int) -> tuple[str, ...]:
        """Return the ids of ``count`` GPUs that an attempt on this worker may have; fewer if there are fewer."""
        found = [gpu.id for gpu in self._free_on(worker) if self._is_free(gpu, kind)]
        if kind.part < WHOLE_GPU:
            found.sort(key=lambda gpu: -self.gpus[gpu])  # the most used: others stay free as a whole
        return tuple(found[:count])

    def _is_free(self, gpu: Gpu, kind: GpuKind) -> bool:
        has_part = self.gpus[gpu.id] + kind.part <= WHOLE_GPU and self.sharing[gpu.id] < gpu.shares
        return has_part and kind.includes(gpu)

    def _has_free(self, worker: str, kind: GpuKind, count: int) -> bool:
        free = self._free_on(worker)
        if len(free) >= count:
            for gpu in reversed(free):  # the most capable first: usually they suffice
                count -= self._is_free(gpu, kind)
                if not count:
                    return True
        return False

    def learn_gpus(self, worker: str) -> set[str]:
        """Note the GPUs that a worker offers. Return the other workers that offer one of them."""
        gpus = [gpu.id for gpu in self._gpus_of(worker)]
        others = self.offering(gpus) - {worker}
        for gpu in gpus:
            self._offering.setdefault(gpu, set()).add(worker)
        for one in (worker, *others):
            self.load_changes(one)
        return others

    def forget_gpus(self, worker: str) -> set[str]:
        """Forget the GPUs that a worker offers. Return the other workers that offer one of them."""
        self.load_changes(worker)
        others = set[str]()
        for gpu in self._gpus_of(worker):
            workers = self._offering.get(gpu.id, set())
            workers.discard(worker)
            others |= workers
            if not workers:
                self._offering.pop(gpu.id, None)
        for other in others:
            self.load_changes(other)
        return others

    def claimed_elsewhere(self, worker: str) -> dict[str, str]:
        """Return the ids of the worker's GPUs that an earlier worker on another computer offers, with the reasons.

        One of the two does not have it: it may be a copy of a virtual machine.
        """
        own, claimed = self._workers[worker], dict[str, str]()
        machine = own.facts.machine
        for gpu in self._gpus_of(worker):
            for other in sorted(self._offering.get(gpu.id, ())):
                known = self._workers[other]
                is_earlier = (known.joined_at, other) < (own.joined_at, worker)
                is_elsewhere = machine and known.facts.machine not in ("", machine)
                if is_earlier and is_elsewhere and known.session is not None:
                    claimed[gpu.id] = f"worker {other}, on another computer, offers it, too"
        return claimed

    def offering(self, gpus: Iterable[str]) -> set[str]:
        """Return the workers that offer one of these GPUs."""
        return {worker for gpu in gpus for worker in self._offering.get(gpu, ())}

    def load_changes(self, worker: str | None = None) -> None:
        """Take in that a worker, or any worker, may withhold other GPUs than before."""
        for known in (self._usable, self._free):
            if worker is None:
                known.clear()
            else:
                known.pop(worker, None)

    def _free_on(self, worker: str) -> list[Gpu]:
        """Return the GPUs of a worker that are not wholly in use, the least capable first."""
        free = self._free.get(worker)
        if free is None:
            usable = self._usable.get(worker)
            if usable is None:
                withheld = self.withheld_on(worker)
                usable = by_capability(gpu for gpu in self._gpus_of(worker) if gpu.id not in withheld)
                self._usable[worker] = usable
            free = self._free[worker] = [gpu for gpu in usable if self.gpus[gpu.id] < WHOLE_GPU]
        return free

    def withheld_on(self, worker: str) -> dict[str, str]:
        """Return the ids of the worker's GPUs that no task may have now, each with the reason."""
        load = self._workers[worker].load
        return {gpu.id: gpu.reason for gpu in (load.withheld_gpus if load else ())} | self.claimed_elsewhere(worker)

    def in_use(self, worker: str, name: str) -> int:
        """Return the units of a worker's resource in use; a GPU in use by several tasks counts once."""
        if name == GPU:
            return sum(gpu.id in self.gpus for gpu in self._gpus_of(worker))
        return self.on_worker.get(worker, _NOTHING)[name]

    def _gpus_of(self, worker: str) -> tuple[Gpu, ...]:
        return next((one.gpus for one in self._workers[worker].facts.resources if one.name == GPU), ())

    def _units_of(self, worker: str, name: str) -> int:
        for one in self._workers[worker].facts.resources:
            if one.name == name:
                return one.units
        return 0

    # --- limits -----------------------------------------------------------------------------------------------

    def allow(self, limit: Limit) -> None:
        """Set a limit."""
        self.allowed.setdefault(limit.name, {})[limit.user] = limit.units
        self._limits_on.clear()

    def lift(self, name: str, user: str) -> None:
        """Remove a limit."""
        self._limits_on.clear()
        del self.allowed[name][user]
        if not self.allowed[name]:
            del self.allowed[name]

    def limits_on(self, name: str, user: str) -> list[tuple[str, int]]:
        """Return the limits of a user, each as WHOLE_GRID or the user, and the units that it allows."""
        known = self._limits_on.get((name, user))
        if known is not None:
            return known
        if len(self._limits_on) >= _MOST_KNOWN:
            self._limits_on.clear()
        found, allowed = list[tuple[str, int]](), self.allowed.get(name, {})
        if (of_all := allowed.get(WHOLE_GRID)) is not None:
            found.append((WHOLE_GRID, of_all))
        if (own := allowed.get(user, allowed.get(EACH_USER))) is not None:
            found.append((user, own))
        self._limits_on[name, user] = found
        return found

    def holders_by(self, name: str, whom: str) -> list[tuple[AttemptId, int]]:
        """Return the attempts that hold units of a limit, with these units: of one user, or of WHOLE_GRID."""
        held = self.holders.get(name, {})
        return [one for one in held.items() if whom == WHOLE_GRID or self._jobs[one[0].job].owner == whom]

    def used_up(
        self, name: str, user: str, units: int, key: RequirementClass | None = None
    ) -> tuple[str, int] | None:
        """Return the limit that one more attempt of a user with these units would exceed; None if there is none.

        A limit is given as its user, or WHOLE_GRID, and the units that it allows. ``key``: the class of the attempt,
        which must leave the units that are set aside for another class.
        """
        aside, theirs = 0, self._aside.get(name) if key is not None else None
        if theirs is not None and theirs != key:
            aside = dict(limits_of(theirs))[name]
        for whom, allowed in self.limits_on(name, user):
            kept = aside if theirs and whom in (WHOLE_GRID, owner_of(theirs)) else 0
            if self.used[name, whom] + units + kept > allowed:
                return whom, allowed
        return None

    def aside_for(self, of: str | int) -> RequirementClass | None:
        return self._aside.get(of) if isinstance(of, str) else None

    # --- use --------------------------------------------------------------------------------------------------

    def count(self, job: Job, attempt: Attempt, change: int) -> tuple[list[str | int], list[str]]:
        """Count an attempt that takes its units (1) or gives them back (-1).

        Return the limits concerned, by name or number of a job, and the worker's resources.
        """
        of_limits, resources = list[str | int](_limits_in(job.needs, self.limits)), list[str]()
        for name, units in job.needs:
            if name in of_limits:
                _add(self.used, (name, WHOLE_GRID), change * units)
                _add(self.used, (name, job.owner), change * units)
                self._hold(name, attempt.id, units if change > 0 else 0)
            else:
                resources.append(name)
                used = self.on_worker.setdefault(attempt.worker, Counter())
                _add(used, name, change * units)
                if not used:
                    del self.on_worker[attempt.worker]
        for gpu in attempt.gpus or ():
            _add(self.gpus, gpu, change * job.spec.requires.gpu_kind.part)
            _add(self.sharing, gpu, change)
            for worker in (attempt.worker, *self._offering.get(gpu, ())):
                self._free.pop(worker, None)
        if job.max_running is None:
            return of_limits, resources
        launch = launch_of(attempt.id, job.nodes)
        before = self._members[launch]
        _add(self._members, launch, change)
        if not (before and self._members[launch]):  # the first member begins, or the last ends
            _add(self.running, job.id, change)
        return [*of_limits, job.id], resources

    def note_start(self, job: Job, attempt: Attempt) -> None:
        """Check an attempt that has just taken its units against the limits in force."""
        taken, alone = self.on_worker.get(attempt.worker, _NOTHING), job.max_running
        is_beyond = self.are_withheld or (alone is not None and self.running[job.id] > alone)
        for name, _ in job.needs:
            if name in self.limits:
                is_beyond |= self.used_up(name, job.owner, 0) is not None
            elif name not in (GPU, COMPUTER):
                is_beyond |= taken[name] > self._units_of(attempt.worker, name)
        is_beyond |= any(self.gpus[gpu] > WHOLE_GPU for gpu in attempt.gpus or ())
        self.starts, self.starts_beyond = self.starts + 1, self.starts_beyond + is_beyond

    def _hold(self, name: str, attempt: AttemptId, units: int) -> None:
        """Note the units of a limit that an attempt holds from now on."""
        held = self.holders.setdefault(name, {})
        if units:
            held[attempt] = units
            return
        del held[attempt]
        if not held:
            del self.holders[name]

    def recount(self, attempts: Iterable[tuple[Job, Attempt]]) -> None:
        """Count these attempts alone."""
        self.used.clear()
        self.holders.clear()
        self.running.clear()
        self._members.clear()
        self.on_worker.clear()
        self.gpus.clear()
        self.sharing.clear()
        self._free.clear()
        for job, attempt in attempts:
            self.count(job, attempt, 1)


def _limits_in(needs: Iterable[tuple[str, int]], limits: Collection[str]) -> Iterator[str]:
    return (name for name, _ in needs if name in limits)


def _add(counts: Counter, of: Hashable, change: int) -> None:  # type: ignore[type-arg]
    """Change a count, and drop it at zero."""
    counts[of] += change
    if not counts[of]:
        del counts[of]
