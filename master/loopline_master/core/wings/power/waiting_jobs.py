"""The tasks that wait for computers, and the computers that could run them, as wake_plan.py needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from math import inf

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.door.mechanism import Purpose
from loopline_master.core.kernel.eligibility import startable_tasks
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.requirement_class import (
    WorkerKind,
    demands_of,
    kind_of,
    limits_of,
    meets,
    nodes_of,
    resources_of,
    slots_of,
    slots_taken,
)
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.core.wings.power.wake_plan import ComputerSlots, WaitingWork

_ALL_USERS = ""
_MOST_READY = 1000
"""Number of jobs that are checked for tasks to start."""


class WaitingJobs:
    """Translates the scheduler's state for one plan."""

    def __init__(self, state: State) -> None:
        self._state = state

    def works(self, asleep: list[Sleeper]) -> Iterator[WaitingWork]:
        """Return the tasks that could start now on one of these sleepers, in the order of arrival of their jobs."""
        state, requirements = self._state, self._state.index.requirements
        if not (able := self._able(asleep)):
            return
        slots_left, promised = self._slots_left(), Counter[tuple[str, str]]()
        for job in self._ready_jobs(able):
            key = requirements.key_of(job)
            tasks = int(min(startable_tasks(state, job), requirements.units.starts_left(key, promised)))
            if job.owner in slots_left:
                slots = job.slots_on(state.workers[min(able[key])]) * job.nodes
                tasks = min(tasks, max(0, slots_left[job.owner]) // slots)
                slots_left[job.owner] -= tasks * slots
            if tasks and not self._is_vetoed(job, min(able[key])):
                for name, units in limits_of(key):
                    promised.update({(name, _ALL_USERS): tasks * units, (name, job.owner): tasks * units})
                yield self._work(job, tasks, key, able[key])

    def coming_tasks(self, coming: list[ComputerSlots]) -> Callable[[Job, int], int]:
        """Return ``Power.coming_tasks``, which reserves slots of these computers."""
        requirements, found = self._state.index.requirements, dict[RequirementClass, set[str]]()

        def count(job: Job, tasks: int) -> int:
            if job.nodes > 1 or not tasks or not coming:
                return 0
            if (key := requirements.key_of(job)) not in found:
                found[key] = {one.name for one in coming if meets(self._state.workers[one.name].facts, key)}
            able, left = found[key], tasks
            if not able or self._is_vetoed(job, min(able)):
                return 0
            work = self._work(job, tasks, key, able)
            for one in coming:
                if left and work.suits(one):
                    left -= work.reserve(left, one, one.takes_within_s)
            if left < tasks:
                coming[:] = [one for one in coming if min(one.free_in_s) <= one.takes_within_s]
            return tasks - left

        return count

    def _work(self, job: Job, tasks: int, key: RequirementClass, asleep: set[str]) -> WaitingWork:
        work = measure.mean_work(self._state.grid, job) / max(1, job.nodes)
        return WaitingWork(tasks, self._slots_on(key, asleep), work, job.nodes)

    def _slots_on(self, key: RequirementClass, asleep: set[str]) -> Callable[[str], int]:
        """Return a function from a computer to the slots that a task of the class takes there; 0: it cannot run."""
        requirements, needs_units = self._state.index.requirements, resources_of(key)
        able = asleep, requirements.with_resources(key), requirements.lacking_resources(key)

        def slots_on(name: str) -> int:
            if not any(name in names for names in able):
                return 0
            worker = self._state.workers[name]
            slots = worker.offered or worker.facts.slots
            return slots_taken(worker.facts, key, slots) if needs_units else slots_of(key)

        return slots_on

    def _able(self, asleep: list[Sleeper]) -> dict[RequirementClass, set[str]]:
        """Return the sleepers that meet each class with a task to start; classes without one are left out."""
        index, kinds = self._state.index, dict[WorkerKind, list[Worker]]()
        for one in asleep:
            worker = self._state.workers[one.worker]
            kinds.setdefault(kind_of(worker.facts), []).append(worker)
        known: dict[object, set[str]] = {}
        found: dict[RequirementClass, set[str]] = {}
        for key in index.requirements.jobs:
            if key not in index.ready and nodes_of(key) == 1:
                continue
            demands = demands_of(key)
            if demands not in known:
                suitable = (workers for workers in kinds.values() if meets(workers[0].facts, key))
                known[demands] = {worker.name for workers in suitable for worker in workers}
            if known[demands] and index.requirements.units.starts_left(key, {}) >= 1:
                found[key] = known[demands]
        return found

    def _ready_jobs(self, keys: Iterable[RequirementClass]) -> list[Job]:
        """Return the first ``_MOST_READY`` jobs of these classes that have a task to start, in order of arrival."""
        index, jobs = self._state.index, self._state.jobs
        found = (jobs[number] for key in keys for number in index.requirements.jobs[key])
        ready = (job.arrival for job in found if index.is_ready(job) or job.arrival in index.parallel)
        return [index.live[arrival] for arrival in nsmallest(_MOST_READY, ready)]

    def _is_vetoed(self, job: Job, worker: str) -> bool:
        """True if a wing would not let a task of this job start on the sleeper if it were awake."""
        task = self._state.fresh[job.id].first_after(0) or 1
        return self._state.wings.veto(job, task, self._state.workers[worker], Purpose.START) is not None

    def _slots_left(self) -> dict[str, int]:
        """Return the slots that each user may still have; empty if users have no limit."""
        state, most = self._state, self._state.settings.user_slots
        if most is None:
            return {}
        left = {job.owner: most for job in state.jobs.values()}
        for attempt in state.attempts.values():
            if attempt.is_seated and not attempt.stands_still:
                left[state.jobs[attempt.job].owner] -= attempt.slots
        return left

    def awake(self, worker: Worker) -> ComputerSlots:
        """Return an awake worker's slots, with the time when each is expected to be free."""
        state, attempts = self._state, self._state.index.attempts
        free_in_s: list[float] = []
        for attempt in attempts.seated_on(worker.name) if worker.name in attempts.of_worker else ():
            left_s = measure.left_of(state.grid, state.jobs[attempt.job], worker, attempt)
            free_in_s += [inf if attempt.stands_still else left_s] * attempt.slots
        free_in_s += [0.0] * (worker.offered - len(free_in_s))
        free_in_s = sorted(free_in_s)[: worker.offered] if worker.is_trusted else []
        waiting_s = attempts.queues.work_ms.get(worker.name, 0) / 1e3 / max(1, worker.offered)
        return ComputerSlots(worker.name, measure.speed_now(worker), [one + waiting_s for one in free_in_s])

    def computer(self, sleeper: Sleeper, ready_in_s: float) -> ComputerSlots:
        worker = self._state.workers[sleeper.worker]
        subnet = sleeper.wake.subnet if sleeper.wake else ""
        free_in_s = [ready_in_s] * worker.facts.slots
        return ComputerSlots(worker.name, measure.speed_of(worker), free_in_s, sleeper.wake_s, subnet)
