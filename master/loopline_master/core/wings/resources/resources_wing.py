"""The wing *resources*: attempts hold units, and no attempt starts if it would exceed a limit.

A job's ``needs`` name limits of the grid, which an operator sets, or resources that its worker offers. A job's
``max_running`` limits its own attempts. A name is one or the other: a limit cannot have the name of a resource that a
worker offers. All units of an attempt are taken in the step that starts it. Held and prefetched tasks hold none.
An attempt with GPUs gets certain ones of its worker, which the wing chooses in that step.

A silent worker ends attempts that hold units of a limit before the master hands the units on (wings/fencing). Others
keep their units until their worker reports again, or is forgotten.

The requirement index asks for the counts (kernel/index/units.py). While a limit is used up, the classes that need it
are served by no worker, so the cost of a step does not grow with the number of jobs that wait for units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from loopline_master.core.events import JobLimited, LimitChanged, WorkerJoined
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.door.mechanism import Handler, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.index.attempts import may_be_running
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.core.wings.resources.frozen_holders import FrozenHolders
from loopline_master.core.wings.resources.limit import Limit
from loopline_shared.model import Load
from loopline_shared.protocol.gpus import COMPUTER, GPU, WHOLE_GPU
from loopline_shared.protocol.worker_link import Assign

MOST_LIMITS = 1000


class Resources(Wing):
    """Awake while a job in memory holds units."""

    concerns = ("holds_units",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._counts = CountedUnits(state.workers, state.jobs, state.index.attempts)
        self._frozen = FrozenHolders(state, self._counts)
        self._jobs: set[int] = set()  # jobs that hold units; some of them may have left memory
        state.keep(self._counts)
        state.index.requirements.count_by(self._counts)

    @property
    def is_awake(self) -> bool:
        return bool(self._jobs)

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {Limit: self._note}

    def restore(self, rows: Rows) -> None:
        for limit in rows.of(Limit):
            self._counts.allow(limit)
        withheld_until = self.state.grid.units_withheld_until
        self._counts.are_withheld = withheld_until is None or withheld_until > self.state.grid.now
        self._jobs = {job.id for job in self.state.jobs.values() if job.holds_units}
        self._counts.counts_computers = any(self.state.jobs[number].exclusive for number in self._jobs)
        self._recount()
        for attempt in self.state.attempts.values():
            if self.state.jobs[attempt.job].needs:
                self._frozen.note(attempt)
        for name in self.state.workers:
            self._counts.learn_gpus(name)
        self.state.rekey(*(job for job in map(self.state.jobs.__getitem__, self._jobs) if job.is_live))

    def handlers(self) -> Mapping[type, Handler]:
        return {
            LimitChanged: self._change_limit,
            JobLimited: self._limit_job,
            WorkerJoined: self._learn_gpus,
        }

    def _learn_gpus(self, event: WorkerJoined, tell: Tell) -> None:
        if event.worker in self.state.workers:
            for other in self._counts.learn_gpus(event.worker):
                self.state.index.requirements.lacking.change(other, (GPU,))

    def worker_left(self, name: str) -> None:
        for other in self._counts.forget_gpus(name):
            self.state.index.requirements.lacking.change(other, (GPU,))

    def load_changes(self, worker: Worker, before: Load | None) -> None:
        """Apply that a worker withholds other GPUs than before."""
        if worker.load and worker.load.withheld_gpus != (before.withheld_gpus if before else ()):
            self._counts.load_changes(worker.name)
            self.state.index.requirements.lacking.change(worker.name, (GPU,))

    def _note(self, limit: Limit) -> None:
        self._counts.allow(limit)
        self.state.effects.note((limit.name, limit.user), limit)

    def enters(self, job: Job) -> None:
        if not self.is_awake:
            self._counts.load_changes()
        self._jobs.add(job.id)
        self._counts.counts_computers |= job.exclusive
        self.state.wings.arrange()

    def finish_step(self) -> None:
        """Preempt frozen attempts whose units are needed. Fall asleep once no job in memory holds units."""
        self._frozen.preempt()
        if not self.state.index.requirements.holding:
            self._jobs = {number for number in self._jobs if number in self.state.jobs}
            if not self._jobs:
                self._counts.counts_computers = False
                self.state.wings.arrange()

    # Requests.

    def _change_limit(self, event: LimitChanged, tell: Tell) -> Reply:
        """Set a limit, or remove it. Running attempts stay, even if they exceed it from now on."""
        name = event.name
        allowed = self._counts.allowed
        is_new = event.user not in allowed.get(name, {})
        offering = [worker.name for worker in self.state.workers.values() if _offers(worker, name)]
        if event.units is None:
            if is_new:
                return Declined(404, "no_such_limit", f"there is no limit {name}", "loopline limits lists them")
            self._counts.lift(name, event.user)
            self.state.effects.drop(Limit, (name, event.user))
        elif name in (GPU, COMPUTER):
            message = f"{name} is the name of workers' {'GPUs' if name == GPU else 'whole computers'}"
            return Declined(409, "is_resource", message, "choose another name for the limit")
        elif offering:
            message = f"{name} is a resource that worker {offering[0]} offers"
            return Declined(409, "is_resource", message, "a limit needs a name that no worker offers")
        elif is_new and sum(map(len, allowed.values())) >= MOST_LIMITS:
            return Declined(422, "too_many_limits", f"there are {MOST_LIMITS:,} limits", "remove some")
        else:
            self.state.put(Limit(name, event.user, event.units))
        self._renew(name)
        return Done()

    def _renew(self, name: str) -> None:
        """Take in that a limit has changed, and that the name may have become one or ceased to be one."""
        state, requirements = self.state, self.state.index.requirements
        jobs = sorted(number for key in requirements.holding_any(name) for number in requirements.jobs[key])
        self._recount()
        state.rekey(*map(state.jobs.__getitem__, jobs))
        requirements.units_change(name)

    def _limit_job(self, event: JobLimited, tell: Tell) -> Reply:
        """Change the number of a job's attempts that may run at once."""
        job = self.state.jobs.get(event.job)
        if job is None or job.is_over:
            return Declined(409, "job_is_over", f"job {event.job} has already ended", "")
        if event.max_running is not None:
            lifecycle.retract_job(self.state, job, "the running attempts of its job are limited")
        job.max_running = event.max_running
        self.enters(job)
        self._recount()
        if job.is_live:
            self.state.rekey(job)
            self.state.index.requirements.units_change(job.id)
        self.state.put(job)
        return Done()

    # Counting.

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        """Count the units of an attempt that begins or ceases to hold them."""
        change = may_be_running(after) - may_be_running(before)
        job = self.state.jobs[attempt.job]
        if self._counts.counts_computers:
            self.state.index.requirements.lacking.change(attempt.worker, (COMPUTER,))
        if not job.holds_units:
            return
        self._frozen.note(attempt)
        if not before and job.spec.requires.gpus:
            attempt.gpus = self._choose_gpus(job, attempt)
        if not change:
            return
        of_limits, resources = self._counts.count(job, attempt, change)
        if not before:
            self._counts.note_start(job, attempt)
        for of in of_limits:
            self.state.index.requirements.units_change(of)
        if resources:
            for worker in {attempt.worker} | self._counts.offering(attempt.gpus or ()):
                self.state.index.requirements.lacking.change(worker, resources)
        if of_limits:
            self.state.memos.clear()

    def _choose_gpus(self, job: Job, attempt: Attempt) -> tuple[str, ...]:
        requires = job.spec.requires
        gpus = self._counts.free_gpus(attempt.worker, requires.gpu_kind, requires.gpu_count)
        assert len(gpus) == requires.gpu_count, (
            f"{attempt.id} starts on {attempt.worker}, which has too few free GPUs"
        )
        return gpus

    def _recount(self) -> None:
        self._counts.recount(self._holding())

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Give attempts their GPUs, and exclusive ones all slots. Preempt frozen ones."""
        if preempted := self._frozen.preempted_on(worker):
            assign.cancel, assign.preempt = (*assign.cancel, *preempted), preempted
        for run in assign.run:
            attempt = self.state.attempts[run.attempt]
            run.slots, run.gpus = attempt.slots, attempt.gpus or ()

    def due_at(self) -> float | None:
        return self.state.grid.units_withheld_until if self._counts.are_withheld else self._frozen.due_at

    def expire(self) -> None:
        """Give units again, once no unknown attempt can hold one."""
        withheld_until = self.state.grid.units_withheld_until
        if self._counts.are_withheld and withheld_until is not None and withheld_until <= self.state.now:
            self._counts.are_withheld = False
            for of in self.state.index.requirements.holding:
                self.state.index.requirements.units_change(of)

    def _holding(self) -> Iterator[tuple[Job, Attempt]]:
        """Return the attempts that hold units, with their jobs."""
        roles = self.state.index.attempts.roles
        for attempt in self.state.attempts.values():
            job = self.state.jobs[attempt.job]
            if job.holds_units and may_be_running(roles.get(attempt.id, 0)):
                yield job, attempt

    def most_waiting(self, job: Job, worker: Worker) -> float:
        """Return 0 for a job that holds units: none of its tasks is prefetched."""
        return 0 if job.holds_units else inf

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if a start exceeded a limit, counts are wrong, or two attempts hold one GPU.

        Also if a class without units left is served.
        """
        assert not self._counts.starts_beyond, f"{self._counts.starts_beyond} attempts started beyond a limit"
        if isinstance(of, Worker):
            self._check_gpus(of)
        if of is not None:
            return
        fresh = CountedUnits(self.state.workers, self.state.jobs, self.state.index.attempts)
        fresh.allowed = self._counts.allowed
        fresh.recount(self._holding())
        for name in ("used", "running", "on_worker", "gpus", "sharing"):
            now, counted = getattr(self._counts, name), getattr(fresh, name)
            assert now == counted, f"{name} is {now}, the attempts hold {counted}"
        for worker in self.state.workers.values():
            self._check_gpus(worker)
        requirements = self.state.index.requirements
        for key in {key for of in requirements.holding for key in requirements.holding_any(of)}:
            serving = requirements.workers[key]
            assert not (serving and fresh.are_out(key)), f"{key} is served, and its units are out"
            short = [name for name in serving if fresh.is_short(name, key)]
            assert not short, f"{short} serve {key} with too few units left"

    def _check_gpus(self, worker: Worker) -> None:
        """Raise AssertionError if an attempt on a worker shares a GPU with another, there or elsewhere."""
        roles = self.state.index.attempts.roles
        for attempt in self.state.index.attempts.of_worker.get(worker.name, {}).values():
            shared = [gpu for gpu in attempt.gpus or () if self._counts.gpus[gpu] > WHOLE_GPU]
            assert not (shared and may_be_running(roles[attempt.id])), (
                f"attempt {attempt.id} shares the GPUs {shared}"
            )


def _offers(worker: Worker, name: str) -> bool:
    return any(one.name == name for one in worker.facts.resources)
