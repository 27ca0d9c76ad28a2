"""The wing *reservations*: a wide task, which needs several units at once, starts in bounded time.

Narrow tasks would take each unit the moment that it is free. So the first wide job of a user reserves a worker, and
units of all its limits, if its next task cannot start anywhere (``Job.reserved``). Other jobs leave it these units as
they become free, and those of resources such as GPUs. Once all are free, nothing else starts on the worker's slots
until they suffice. Then the wide task is proposed first, before the policy is asked.

Each user has one reservation at most, and so has each worker and each limit. A task with a reservation waits for
running attempts only, never for another reservation (docs/design/hold.md). While it has none because others must
have a unit of its limits first, later wide tasks and gangs leave it all of its limits. The hold and all vetoes apply
to its proposal as to any other. What was reserved last is not reserved again until another task has started there: a
stream of wide tasks must not keep narrow ones out.

A worker is reserved only while it would suffice if it were empty, and while every attempt that must end first has an
expected end. Frozen attempts have none, and neither have those without a prediction and a time limit: the reservation
might keep others out for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

from loopline_master.core.estimates.holder_estimate import has_end, latest_reserved, left_s, limits_suffice_later
from loopline_master.core.events import JobLimited, LimitChanged, SnapshotWritten
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.door.mechanism import Ask, Handler, Purpose, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import UNSEATED, Attempt, Job, Worker
from loopline_master.core.kernel.index.requirement_class import limits_of, owner_of, resources_of
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.index.units import Turn, time_until
from loopline_master.core.kernel.kernel_events import MasterStarted
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.policies.policy import Placement, Proposal, View
from loopline_shared.protocol.gpus import COMPUTER

_MOST_CANDIDATES = 32
_MOST_TRIED = 3
"""First classes of a user that are tried in a step; and one of the others, each second another."""
_LOOK_AT = 8
_REASON = "a wide task is next on its worker"


class Reservations(Wing):
    """Awake while a wide job is in memory."""

    concerns = ("is_wide",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._new: list[int] = []  # wide jobs that have entered, and have no class yet
        self._keys: dict[str, set[RequirementClass]] = {}  # of wide jobs, by user; some may have left
        self._holders: dict[str, int] = {}  # jobs by the worker that they have reserved
        self._kept: dict[str, RequirementClass] = {}  # their classes, by the worker
        self._of_limit: dict[str, str] = {}  # by limit: the reserved worker of the job that has units set aside
        self._offers: dict[str, tuple[object, ...]] = {}  # slots and withheld GPUs of reserved workers
        self._changed: set[str] = set()  # reserved workers with other attempts, or attempts in other states
        self._first: list[tuple[int, str]] = []  # jobs and workers to be proposed first in this step
        self._proposed: set[int] = set()  # jobs that were

    @property
    def is_awake(self) -> bool:
        return bool(self._new or self._keys or self._holders)

    def restore(self, rows: Rows) -> None:
        for job in self.state.jobs.values():
            if job.is_wide:
                self._new.append(job.id)
            if job.reserved:
                worker = self.state.workers[job.reserved]
                self._keep_resources(job, worker)
                if not self._is_short(job, worker):
                    self.state.index.slots.reserved.add(worker.name)
                    self.state.index.slots.place(worker)

    def handlers(self) -> Mapping[type, Handler]:
        forget = self._forget_turns
        return {LimitChanged: self._renew, JobLimited: self._renew, MasterStarted: forget, SnapshotWritten: forget}

    def _forget_turns(self, event: MasterStarted | SnapshotWritten, tell: Tell) -> None:
        """Forget which limits are left to wide tasks: a restarted scheduler does not know."""
        self.state.index.requirements.units.of_wide = {}

    def _renew(self, event: LimitChanged | JobLimited, tell: Tell) -> None:
        """Release the workers of jobs with a new requirement class, and reserve again at the end of the step."""
        key_of, kept = self.state.index.requirements.key_of, self._kept
        for name, number in list(self._holders.items()):
            job = self.state.jobs.get(number)
            if job is None or key_of(job) != kept[name]:
                self._release(name)
        self._new += [job.id for job in self.state.jobs.values() if job.is_wide and job.is_live]
        self.state.wings.arrange()

    def enters(self, job: Job) -> None:
        self._new.append(job.id)
        self.state.wings.arrange()

    def worker_left(self, name: str) -> None:
        if name in self._holders:
            self._release(name)

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        """Release the worker of a job as soon as one of its tasks starts anywhere."""
        job = self.state.jobs[attempt.job]
        if not before:
            if job.reserved or job.id in self._proposed:
                job.by_reservation = attempt.task
                self.state.put(job)
            if job.reserved:
                self._release(job.reserved)
        if attempt.worker in self._holders:
            self._changed.add(attempt.worker)
        if attempt.gpus and self._holders:  # other workers may offer them, too
            self._changed |= self._holders.keys() & self.state.index.requirements.units.offering(attempt.gpus)
        for name, _ in job.needs if self._of_limit and after else ():  # its end frees units, and makes none void
            if name in self._of_limit:
                self._changed.add(self._of_limit[name])
                self._give_back_slots(self._of_limit[name])

    def place(self) -> Iterator[None]:
        """Release the workers that have enough free now, to propose their tasks first."""
        changed, self._changed = self._changed, set()
        for name, number in list(self._holders.items()):
            job, worker = self.state.jobs.get(number), self.state.workers[name]
            if job is None or self._is_void(job, worker, has_changed=name in changed):
                self._release(name)
            elif not self._is_short(job, worker):
                if self._has_room(job, worker):
                    self._release(name)
                    self._first.append((number, name))
                elif name not in self.state.index.slots.reserved:
                    self._keep_slots(worker)
        yield

    def _is_void(self, job: Job, worker: Worker, *, has_changed: bool) -> bool:
        """True if a reservation must be released.

        ``has_changed``: attempts on its worker, or holders of its limits, may have changed.
        """
        if not self._may_reserve(job) or worker.name not in self._able(job) or not self._would_suffice(job, worker):
            return True
        offers = worker.offered, worker.load and worker.load.withheld_gpus
        has_changed |= self._offers.get(worker.name) != offers
        self._offers[worker.name] = offers
        if not has_changed:
            return False
        return not self._will_be_free(job, worker) or not limits_suffice_later(self.state, self._kept[worker.name])

    def in_turn(self, ask: Ask) -> Ask:
        """Propose the tasks whose workers have been reserved long enough, then what the policy proposes."""

        def first(view: View) -> Iterator[Proposal]:
            ready, self._first = self._first, []
            self._proposed.update(number for number, _ in ready)
            for number, name in ready:
                job, worker = self.state.jobs[number], self.state.workers[name]
                if (task := view.first_startable(job, worker)) is not None:
                    yield Placement(number, task, name)
            yield from ask(view)

        return first

    def finish_step(self) -> None:
        """Reserve a worker for each user's first wide job, if it cannot start anywhere now."""
        self._proposed.clear()
        requirements = self.state.index.requirements
        for key in [requirements.keys[new] for new in self._new if new in requirements.keys]:
            self._keys.setdefault(owner_of(key), set()).add(key)
        self._new = [new for new in self._new if new in self.state.jobs and new not in requirements.keys]
        owners = {self.state.jobs[number].owner for number in self._holders.values()}
        waiting = list[tuple[Turn, Job, RequirementClass]]()
        for owner in [*self._keys.keys() - owners]:
            self._keys[owner] &= requirements.jobs.keys()
            if theirs := self._first_ones(self._keys[owner]):
                waiting += [(self.state.turn_of(job), job, key) for job, key in theirs]
            elif not self._keys[owner]:
                del self._keys[owner]
        of_wide = dict[str, Turn]()
        for turn, job, key in sorted(waiting, key=lambda one: (one[0], one[1].id)):
            if job.owner not in owners and self._reserve(job, key, turn, of_wide):
                owners.add(job.owner)
        requirements.units.of_wide = of_wide
        if not self.is_awake:
            self.state.wings.arrange()

    def _first_ones(self, keys: Iterable[RequirementClass]) -> list[tuple[Job, RequirementClass]]:
        """Return the first jobs that could start a task if there were room, of different classes, and one more."""
        ready = self.state.index.ready
        waiting = sorted((key for key in keys if key in ready), key=lambda key: ready[key].starts[0])
        found = list[tuple[Job, RequirementClass]]()
        while waiting and len(found) < _MOST_TRIED:
            key = waiting.pop(0)
            found += [(job, key)] if (job := self._first_of(key)) else []
        if waiting:
            key = waiting[int(self.state.now) % len(waiting)]
            found += [(job, key)] if (job := self._first_of(key)) else []
        return found

    def _first_of(self, key: RequirementClass) -> Job | None:
        """Return the first job of a class that could start a task if there were room; None if there is room."""
        index = self.state.index
        turns = index.ready.get(key)
        job = index.live.get(self._arrival_in(turns.starts[0], key)) if turns and turns.starts else None
        if job is None or not self._may_reserve(job):
            return None
        if key in index.requirements.out:
            return job
        for free, _, name in index.slots.idle.order[:_LOOK_AT]:
            if -free >= job.slots and name in index.requirements.workers[key]:
                return None
        return job

    def _arrival_in(self, turn: int, key: RequirementClass) -> int:
        """Return the arrival of the first job of a class with this turn, which the jobs of a session share."""
        session = self.state.index.sessions.at.get(turn)
        return turn if session is None else session.first_ready(lambda one: one == key) or turn

    def _may_reserve(self, job: Job) -> bool:
        """True if the job has a task to start that nothing but the lack of room holds back."""
        index = self.state.index
        is_ready = job.is_live and not (job.paused or job.stalled) and index.is_ready(job)
        if not is_ready or index.is_held(job):
            return False
        key, requirements = index.requirements.key_of(job), index.requirements
        return key not in requirements.out or requirements.units.wait_for_limits(key)

    def _reserve(self, job: Job, key: RequirementClass, turn: Turn, of_wide: dict[str, Turn]) -> bool:
        """Reserve the worker that is expected to have room first. False if there is none, or others come first.

        ``of_wide``: the limits of earlier tasks that others must have first; those of this task may be added.
        """
        limits = limits_of(key)
        if limits and all(name in of_wide for name, _ in limits):
            return False  # an earlier task has passed already, and this one would change nothing
        if not limits_suffice_later(self.state, key):
            return False
        worker = self._first_to_have_room(job)
        if worker is None:
            return False
        if self._must_pass(key, turn, of_wide):
            for name, _ in limits_of(key):
                of_wide.setdefault(name, turn)
            return False
        job.reserved = worker.name
        self._keep_resources(job, worker)
        if not self._is_short(job, worker):
            self._keep_slots(worker)
        self.state.put(job)
        return True

    def _must_pass(self, key: RequirementClass, turn: Turn, of_wide: Collection[str]) -> bool:
        """True if others must have units of a limit first, so that no unit may be set aside."""
        units = self.state.index.requirements.units
        if units.are_set_aside(key):
            return True
        for name, _ in limits_of(key):
            if name in of_wide or (name in units.of_gangs and units.of_gangs[name] < turn):
                return True
        return any(latest_reserved(self.state, holders) for _, holders in units.shortages(key))

    def _first_to_have_room(self, job: Job) -> Worker | None:
        """Return the worker that is expected to have room first; None if there is none."""
        names = sorted(self._able(job) - self._holders.keys())
        first = job.arrival % len(names) if names else 0
        names = [*names[first:], *names[:first]][:_MOST_CANDIDATES]
        waiting = self.state.index.ready_sets[job.id].to_retry.starts
        task = waiting[0] if waiting else self.state.fresh[job.id].first_after(0) or 1
        workers = [one for one in map(self.state.workers.__getitem__, names) if self._would_suffice(job, one)]
        best_s, best = min(
            (
                (self._free_in_s(job, worker), worker.name)
                for worker in workers
                if self.state.wings.veto(job, task, worker, Purpose.START) is None
                and not self._last_was_reserved(worker)
            ),
            default=(inf, ""),
        )
        return None if best_s == inf else self.state.workers[best]

    def _last_was_reserved(self, worker: Worker) -> bool:
        """True if the latest start on the worker was one by reservation."""
        here = self.state.index.attempts.of_worker.get(worker.name, {})
        return bool(here) and latest_reserved(self.state, ((number, 0) for number in here)) is not None

    def _able(self, job: Job) -> set[str]:
        requirements = self.state.index.requirements
        key = requirements.key_of(job)
        return requirements.trusted.get(key, set())

    def _would_suffice(self, job: Job, worker: Worker) -> bool:
        """True if the worker offers enough for a task of the job once nothing else runs there."""
        requirements = self.state.index.requirements
        enough_slots = worker.offered >= job.slots_on(worker)
        return enough_slots and requirements.units.would_suffice(worker.name, requirements.key_of(job))

    def free_in_s(self, job: Job) -> float:
        """Return the expected time until a job with a reservation can start its next task, in seconds."""
        longest_s = self._free_in_s(job, self.state.workers[job.reserved])
        for missing, holders in self.state.index.requirements.units.shortages(self._kept[job.reserved]):
            ends = ((left_s(self.state, self.state.attempts[number]), units) for number, units in holders)
            longest_s = max(longest_s, time_until(missing, ends))
        return longest_s

    def _will_be_free(self, job: Job, worker: Worker) -> bool:
        """True if ``_free_in_s`` is finite: surely if each attempt there has an expected end and holds no GPU."""
        here = self.state.index.attempts.of_worker.get(worker.name, {})
        if job.spec.requires.gpus or not all(has_end(self.state, attempt) for attempt in here.values()):
            return self._free_in_s(job, worker) < inf
        return True

    def _free_in_s(self, job: Job, worker: Worker) -> float:
        """Return the expected time until enough of the worker is free, in seconds; infinity if none is expected."""
        attempts, requirements = self.state.index.attempts, self.state.index.requirements
        here = attempts.of_worker.get(worker.name, {})
        left = {number: left_s(self.state, attempt) for number, attempt in here.items()}
        missing = job.slots_on(worker) - (worker.offered - attempts.in_hand(worker.name))
        ends = ((left[one.id], one.slots) for one in here.values() if one.is_seated or one.state in UNSEATED)
        resources_s = requirements.units.free_after(worker.name, requirements.key_of(job), left)
        return max(time_until(missing, ends), resources_s)

    def _is_short(self, job: Job, worker: Worker) -> bool:
        """True if too few units are left of its limits, or of a resource that the job needs several units of."""
        requirements = self.state.index.requirements
        key = requirements.key_of(job)
        return key in requirements.out or (bool(_shared_names(job)) and requirements.units.is_short(worker.name, key))

    def _has_room(self, job: Job, worker: Worker) -> bool:
        requirements = self.state.index.requirements
        has_slots = worker.offered - self.state.index.attempts.in_hand(worker.name) >= job.slots_on(worker)
        return has_slots and not requirements.units.lacks(worker.name, resources_of(requirements.key_of(job)))

    def _keep_resources(self, job: Job, worker: Worker) -> None:
        requirements = self.state.index.requirements
        key = requirements.key_of(job)
        self._holders[worker.name], self._kept[worker.name] = job.id, key
        self._changed.add(worker.name)
        requirements.units.set_aside(key)
        self._of_limit.update({limit: worker.name for limit, _ in limits_of(key)})
        self._limits_change(key)
        if names := _shared_names(job):
            requirements.units.keep(worker.name, key, names)
            requirements.lacking.change(worker.name, names, one_by_one=True)

    def _limits_change(self, key: RequirementClass) -> None:
        """Take in that units of the limits of a class are set aside for it, or no longer are."""
        for name, _ in limits_of(key):
            self.state.index.requirements.units_change(name)

    def _keep_slots(self, worker: Worker) -> None:
        self.state.index.slots.reserved.add(worker.name)
        lifecycle.retract_from(self.state, worker, _REASON)
        self.state.put(worker)

    def _give_back_slots(self, name: str) -> None:
        """Let others have the slots of a reserved worker if units are short again: a job of its class took them."""
        reserved, worker = self.state.index.slots.reserved, self.state.workers[name]
        job = self.state.jobs.get(self._holders[name])
        if name in reserved and job is not None and self._is_short(job, worker):
            reserved.discard(name)
            self.state.put(worker)

    def _release(self, name: str) -> None:
        job, key = self.state.jobs.get(self._holders.pop(name)), self._kept.pop(name)
        self._offers.pop(name, None)
        self.state.index.slots.reserved.discard(name)
        self.state.index.requirements.units.keep(name, None, frozenset())
        self.state.index.requirements.units.set_aside(key, ends=True)
        for limit, _ in limits_of(key):
            self._of_limit.pop(limit, None)
        self._limits_change(key)
        if job is not None:
            job.reserved = ""
            self.state.index.requirements.lacking.change(name, _shared_names(job), one_by_one=True)
            self.state.put(job)
        self.state.put(self.state.workers[name])

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if tasks with reservations may wait for one another, or for something they cannot get.

        Each waits for attempts that may be running, which wait for nothing, if none has a part of another's
        reservation.
        """
        owners, limits = Counter[str](), Counter[str]()
        for name, number in self._holders.items() if of is None else ():
            job, key = self.state.jobs[number], self._kept[name]
            owners[job.owner] += 1
            limits.update(dict(limits_of(key)).keys())
            assert job.reserved == name, f"{name} is reserved for job {number}"
            assert self._may_reserve(job), f"{name} is reserved for job {number}, which may not start"
            others = self.state.index.requirements.units.are_set_aside(key)
            assert not others, f"{name} is reserved for job {number}, and units of its limits for others"
            is_kept = name in self.state.index.slots.reserved
            assert not (is_kept and self._is_short(job, self.state.workers[name])), f"slots of {name} wait for units"
        twice = [one for counts in (owners, limits) for one, times in counts.items() if times > 1]
        assert not twice, f"{twice} have two reservations"


def _shared_names(job: Job) -> frozenset[str]:
    """Return the resources that a task needs several units of."""
    return frozenset(name for name, units in job.needs if units > 1 and name != COMPUTER)
