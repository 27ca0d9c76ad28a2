"""The scheduler's memory: entities, the effects of the current step, and the indexes.

- *Entities* (entities.py) are the truth. lifecycle.py and the rules change them in place.
- *Effects* (effects.py) are the rows to store, and the answers and frames to send once a step is over.
- *Indexes* (index/) are functions of the entities and can always be rebuilt from them. They never replace an entity;
  policies and event handlers use them for lookups.

The rule: code that changes an entity calls ``put(entity)`` before the current event or placement is over. Only the
scheduler's step calls ``flush()``, between events and between placements.

``put`` notes the row for the store and marks the entity for indexing. An attempt enters ``index.attempts`` at once,
because lifecycle.py counts a task's attempts within an event; every other index stays as the last ``flush`` left it.
A function that needs an up-to-date index halfway is split in two, and the step calls the parts one after the other
(``lifecycle.complete_next`` and ``requests.release_followers``).

``flush`` indexes each changed entity once. It skips jobs whose place does not change (``Index.stays``), and of a
worker whose load alone has changed it indexes only the slots. Reports of one step may share a flush, because one
worker's Report does not concern another, unless one of them ends its job (``is_due``).

A new entity is put like a changed one. The exception is a job that arrives with finished tasks, because it is
retried: ``restore`` is called for it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from loopline_master.core.kernel.door.hooks import Wings
from loopline_master.core.kernel.door.mechanism import NO_LEAD, DataPlaces, Lead, Mechanism
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.index.attempts import OF_TASK, ReadySet
from loopline_master.core.kernel.index.index import Index
from loopline_master.core.kernel.index.policy_index import JobIndex, PolicyIndex
from loopline_master.core.kernel.index.requirement_class import meets
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.kernel.index.units import NO_UNITS, Turn
from loopline_master.core.kernel.runs import ProgramKey
from loopline_master.core.kernel.scheduler_settings import SchedulerSettings
from loopline_master.core.kernel.stored_rows import Rows
from loopline_shared.model import AttemptId, TaskId

Memory = TypeVar("Memory")


class State:
    """Keeps entities, index and effects consistent with one another; decides nothing."""

    def __init__(self, rows: Rows) -> None:
        self.settings = SchedulerSettings()
        self.prefetch_s = 0.0  # expected work that may wait at a worker, for each of its slots
        self.grid: Grid = rows.grid
        self.workers: dict[str, Worker] = {worker.name: worker for worker in rows.workers}
        self.jobs: dict[int, Job] = {job.id: job for job in rows.jobs}
        self.tasks: dict[TaskId, Task] = {task.id: task for task in rows.tasks}
        self.programs: dict[ProgramKey, Program] = {program.key: program for program in rows.programs}
        self.attempts: dict[AttemptId, Attempt] = {attempt.id: attempt for attempt in rows.attempts}
        self.fresh: dict[int, IntervalSet] = {  # by job: the tasks never started
            job.id: IntervalSet(rows.started.get(job.id, ())).others(job.task_count) for job in rows.jobs
        }
        self.lead: Lead = NO_LEAD  # of jobs with several nodes
        self.data = DataPlaces()  # of large files
        self._own: dict[type, Any] = {}
        self.index = self.rebuilt_index()
        self.effects = Effects(self.grid)
        self.policy_index: PolicyIndex | None = None  # of the policy in force, if it needs one
        self.policy_job_index: JobIndex | None = None  # ... the same index, if it also follows jobs
        self.memos: dict[object, object] = {}  # policy caches, cleared when workers or live jobs change (View.memo)
        self.accepted: tuple[int, int, str] | None = (
            None  # job, task, worker: View.accepts said yes, and nothing has changed since
        )
        self.departed: list[Job] = []  # jobs that ended in this event
        self.is_due = False  # a job's last task is over: flush before anything else is taken in
        self.is_policy_outdated = False  # the index of the policy in force must be rebuilt
        self._changed_workers: dict[str, Worker] = {}  # put, but not yet indexed again ...
        self._busied: dict[str, Worker] = {}  # ... or only what they hold has
        self._changed_jobs: dict[int, Job] = {}
        self._changed_tasks: dict[TaskId, Task] = {}
        self._changed_programs: dict[ProgramKey, Program] = {}
        self._signatures: dict[str, tuple[object, ...]] = {}  # of workers, as last fully indexed
        self._notes: dict[type, Callable[[Any], None]] = {
            Worker: self._note_worker,
            Job: self._note_job,
            Task: self._note_task,
            Attempt: self._note_attempt,
            Program: self._note_program,
        }
        self.wings = Wings(())

    def open_wings(self, wings: Iterable[Mechanism], rows: Rows) -> None:
        """Restore these wings from their rows and call their hooks from now on."""
        opened = [*wings]
        for wing in opened:
            self._notes |= wing.entities()
            wing.restore(rows)
        self.wings = Wings(opened)

    def keep(self, memory: object) -> None:
        """Keep the memory of a wing, for callers that ask for its class."""
        self._own[type(memory)] = memory

    def own(self, kind: type[Memory]) -> Memory:
        """Return the memory of a wing. Raises KeyError if the scheduler has no such wing."""
        return self._own[kind]  # type: ignore[no-any-return]

    def rebuilt_index(self) -> Index:
        """Return a new index, built from the entities."""
        index = Index.build(
            self.workers.values(),
            self.jobs.values(),
            self.tasks.values(),
            self.attempts.values(),
            self.fresh,
            self.index.requirements.units if hasattr(self, "index") else NO_UNITS,
            self.index.slots.reserved if hasattr(self, "index") else frozenset(),
        )
        index.programs = self.programs
        for program in self.programs.values():
            index.program_use.place(program.key, (program.used_at, program.key))
        return index

    def rekey(self, *jobs: Job) -> None:
        """Index live jobs again, after a change of the units that their attempts need or of the units left."""
        self.index.rekey([(job, self.fresh[job.id]) for job in jobs])
        for job in jobs:
            self._update_starvation(job)
        self.memos.clear()
        self.is_policy_outdated = True

    def set_policy_index(self, index: PolicyIndex | None) -> None:
        """Use the index of the policy that comes into force; None if that policy has no index."""
        self.policy_index, self.policy_job_index = index, index if isinstance(index, JobIndex) else None

    @property
    def now(self) -> float:
        return self.grid.now

    def next_sequence(self) -> int:
        self.grid.sequence += 1
        return self.grid.sequence

    def turn_of(self, job: Job) -> Turn:
        """Return a job's place in the order of turns: users with the least use come first."""
        return self.wings.rank(job.owner), job.tag if self.settings.policy == "fair" else 0.0, job.turn

    def put(self, *entities: object) -> None:
        """Note new or changed entities: their rows for the store, and that they must be indexed."""
        notes = self._notes
        for entity in entities:
            notes[entity.__class__](entity)

    def restore(self, job: Job, over: IntervalSet | None = None) -> None:
        """Register a job that may have finished tasks (``over``); the caller then puts it."""
        self.jobs[job.id] = job
        self.fresh[job.id] = IntervalSet.up_to(job.task_count) if over is None else over.others(job.task_count)
        self.index.ready_sets[job.id] = ReadySet()

    def flush(self, *, completes: bool = False) -> None:
        """Index each entity that was put since the last flush. Only ``Scheduler.step`` calls it.

        ``completes``: the caller completes all jobs that can complete before it looks anything up.
        """
        if self._changed_programs:
            self._index_programs()
        if self._changed_workers:
            self._index_workers()
        if self._busied:
            self._index_slots()
        if self._changed_tasks:
            self._index_tasks()
        is_due, self.is_due = completes and self.is_due, False
        while self._changed_jobs:
            changed, self._changed_jobs = self._changed_jobs, {}
            for job in changed.values():
                if job.id in self.jobs and not (is_due and self.index.may_complete(job)):
                    self._index_job(job)  # a job forgotten since it was put is skipped

    def gather(self) -> Effects:
        """Return the gathered effects and start with empty ones; forget the workers that have left."""
        gathered = self.effects
        if gathered.gone:
            self._forget_workers(gathered)
        self.effects = Effects(self.grid)
        return gathered

    def _forget_workers(self, effects: Effects) -> None:
        here = (self.workers, self._signatures, self._changed_workers, self._busied)
        for name in effects.gone:
            for known in (*here, effects.workers, effects.assigns):
                known.pop(name, None)
            self.index.drop_worker(name)
        self.memos.clear()

    def _note_worker(self, worker: Worker) -> None:
        name = worker.name
        self.workers[name] = self.effects.workers[name] = self._changed_workers[name] = worker

    def _note_job(self, job: Job) -> None:
        number = job.id
        self.effects.jobs[number] = job
        if number not in self.jobs:
            self.restore(job)
        elif self.index.stays(job, self.fresh[number]):
            return
        self._changed_jobs[number] = job
        if job.succeeded + job.failed == job.task_count:
            self.is_due = True

    def _note_task(self, task: Task) -> None:
        number = task.id
        self.tasks[number] = self.effects.tasks[number] = self._changed_tasks[number] = task

    def _note_attempt(self, attempt: Attempt) -> None:
        """Note an attempt, its worker, and its task, whose need of replicas may have changed."""
        number, name = attempt.id, attempt.worker
        self.effects.attempts[number] = attempt
        if attempt.ended_at is None:
            self.attempts[number] = attempt
        else:
            self.attempts.pop(number, None)
        changed = self.index.attempts.place(attempt)
        if changed & OF_TASK or (changed and (attempt.replica or self.policy_job_index is not None)):
            self._changed_tasks[attempt.task_id] = self.tasks[attempt.task_id]  # a replica in a slot uses up a budget
        if changed and self.wings.role_changes:
            role = self.index.attempts.roles.get(number, 0)
            for change in self.wings.role_changes:
                change(attempt, role ^ changed, role)
        self._busied[name] = self.workers[name]

    def _note_program(self, program: Program) -> None:
        key = program.key
        self.programs[key] = self.effects.programs[key] = program
        if self.index.program_use.keys.get(key) != (program.used_at, key):
            self._changed_programs[key] = program

    def _index_programs(self) -> None:
        """Index the changed programs, and forget the longest unused ones if there are too many."""
        ranking = self.index.program_use
        for key, program in self._changed_programs.items():
            ranking.place(key, (program.used_at, key))
        self._changed_programs.clear()
        while len(ranking.keys) > self.settings.max_programs:
            oldest = ranking.order[0][1]
            ranking.place(oldest, None)
            self.effects.programs.pop(oldest, None)
            self.effects.forgotten.append(oldest)
            del self.programs[oldest]

    def _index_workers(self) -> None:
        """Index the changed workers: fully if their signature has changed, otherwise only their slots.

        Usually the slots are enough. If only the lease has changed, which is the last part of the signature, the
        worker's place is indexed too.
        """
        signatures, octaves = self._signatures, self.index.octaves
        learnt = octaves.learnt
        for name, worker in self._changed_workers.items():
            signature = (
                worker.session, worker.offered, worker.draining, worker.quarantined_until, worker.facts,
                worker.lease_until,
            )  # fmt: skip
            known = signatures.get(name)
            if known != signature:
                signatures[name] = signature
                if known is not None and known[:-1] == signature[:-1]:
                    self.index.place_worker(worker)
                else:
                    octaves.place(worker)
                    self._index_whole(worker)
            if learnt.get(name) != worker.work_s:
                octaves.place(worker)
        self._busied |= self._changed_workers
        self._changed_workers.clear()

    def _index_slots(self) -> None:
        index, slots, own = self.index, self.index.slots, self.policy_index
        for worker in self._busied.values():
            if worker.session is None:  # its attempts may decide whether it has a lease
                index.place_worker(worker)
            slots.place(worker)
            if own is not None:
                own.place_worker(worker)
        self._busied.clear()

    def _index_whole(self, worker: Worker) -> None:
        requirements = self.index.requirements
        if not requirements.knows(worker):
            self.memos.clear()
            for key in requirements.place_worker(worker):
                for job_id in sorted(requirements.jobs[key]):
                    self._update_starvation(self.jobs[job_id])
        self.index.place_worker(worker)

    def _index_tasks(self) -> None:
        index, own, jobs = self.index, self.policy_job_index, self.jobs
        ready_sets, attempts, voters, delayed = index.ready_sets, index.attempts, index.voters, index.delayed
        for task in self._changed_tasks.values():
            job, ready_set = jobs[task.job], ready_sets[task.job]
            if ready_set.place(task, job, attempts) or job.budget_s is not None:
                self._changed_jobs[job.id] = job
            if task.retry_at is not None or delayed.keys:
                index.place_delay(task)
            if task.votes or voters:
                index.place_voters(task)
                if task.votes and job.is_live:
                    self._update_starvation(job)
            if own is not None and own.place_task(task):
                self._changed_jobs[job.id] = job
            if task.number not in ready_set.kept:
                self.tasks.pop(task.id, None)
        self._changed_tasks.clear()

    def _index_job(self, job: Job) -> None:
        """Index a changed job, and mark the jobs that it no longer holds, or holds again."""
        entry = self.index.in_grid.get(job.id)
        if entry is None and job.is_live:  # it enters the grid
            self.index.requirements.add_job(job)
            self._update_starvation(job)
        is_elsewhere = self.index.place_job(job, self.fresh[job.id])
        if job.nodes > 1:
            self.lead.job_placed(job)
        if self.policy_job_index is not None:
            self.policy_job_index.place_job(job)
        if not is_elsewhere and job.departure is None:
            return
        before = entry[1] if entry is not None else ""
        if entry != (place := self.index.in_grid.get(job.id)):
            self.memos.clear()
            self._renew_exemption(job, before, place[1] if place is not None else "")
        if self.index.is_held(job) and job.held_at is None:
            job.held_at = self.now
            self.effects.jobs[job.id] = job
        self._index_later_jobs(job, was_exempt=bool(before))
        self._forget_if_over(job)

    def _index_later_jobs(self, job: Job, *, was_exempt: bool) -> None:
        """Mark the jobs that this job no longer holds, or holds again."""
        if not job.is_live or job.is_exempt:
            for blocked in sorted(self.index.blocked.get(job.arrival, ())):
                self._changed_jobs[blocked] = self.jobs[blocked]
        elif was_exempt:
            for arrival in sorted([arrival for arrival in self.index.released if arrival > job.arrival]):
                later = self.index.live[arrival]
                self._changed_jobs[later.id] = later

    def _renew_exemption(self, job: Job, before: str, reason: str) -> None:
        if before != reason:
            for change in self.wings.exemption_changes:
                change(job, before, reason)
            self.effects.jobs[job.id] = job

    def _update_starvation(self, job: Job) -> None:
        """Note the time since which no available worker can run the job, or that one can again."""
        starved = self.index.requirements.is_starved(job) or self.index.is_stuck(job, self.fresh[job.id])
        if starved != (job.starved_since is not None):
            job.starved_since = self.now if starved else None
            job.stalled = starved and not job.running and self._is_hopeless(job)
            self.put(job)

    def _is_hopeless(self, job: Job) -> bool:
        """True if there are workers, but none could run the job even if all absent workers came back."""
        key = self.index.requirements.key_of(job)
        return bool(self.workers) and not any(meets(worker.facts, key) for worker in self.workers.values())

    def _forget_if_over(self, job: Job) -> None:
        """Forget an ended job once its last attempt is gone."""
        if job.is_over and job.id in self.jobs and not self.index.ready_sets[job.id].kept:
            del self.jobs[job.id], self.fresh[job.id], self.index.ready_sets[job.id]
