"""An in-memory store: the rows that a commit keeps and a restart finds. It is exactly as strict as the real one."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from loopline_master.core.events import BATCH, Batch
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import UNRELEASED, Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.kernel.runs import ProgramKey
from loopline_master.core.kernel.transitions import END
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount, ResumedAttempt, SavedCheckpoint
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_master.core.wings.exemptions.exemption import Evidence, Exemption, flaw_of
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.planning.plan import BrokenPromise, Plan
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.core.wings.resources.limit import Limit
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.transfers.carrier import Carrier
from loopline_shared.model import AttemptId, AttemptState, Order, Result, TaskId


class MemoryStore:
    def __init__(self) -> None:
        self.grid = Grid()
        self.jobs: dict[int, Job] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.attempts: dict[AttemptId, Attempt] = {}
        self.workers: dict[str, Worker] = {}
        self.programs: dict[ProgramKey, Program] = {}
        self.gangs: dict[AttemptId, Gang] = {}
        self.plans: dict[TaskId, Plan] = {}
        self.carriers: dict[str, Carrier] = {}
        self.users: dict[str, User] = {}
        self.limits: dict[tuple[str, str], Limit] = {}
        self.checkpoints: dict[tuple[int, int, str], SavedCheckpoint] = {}
        self.resumed: dict[AttemptId, ResumedAttempt] = {}
        self.checkpoint_accounts: dict[AttemptId, CheckpointAccount] = {}
        self.energies: dict[tuple[int, int, int, str], AttemptEnergy] = {}
        self.sleepers: dict[str, Sleeper] = {}
        self.broken: list[BrokenPromise] = []
        self.exemptions: dict[tuple[int, float, str], Exemption] = {}
        self.evidence: dict[tuple[int, float, str], Evidence] = {}
        self.log: list[bytes] = []
        self.passings: list[tuple[int, int]] = []  # found by the audit and not excused

    def commit(self, batch: Batch, effects: Effects) -> None:
        """Keep a step. The database keeps none without events and effects, so that one may change the time alone."""
        if not batch.events and _is_empty(effects):
            assert effects.grid == replace(self.grid, now=effects.grid.now), (
                "a step without effects is not in the log"
            )
        self.keep(effects)
        for evidence in effects.told(Evidence):
            self._check_evidence(evidence)
        self.log.append(BATCH.dump_json(batch))
        for job_id in effects.completed:
            self._audit(self.jobs[job_id])

    def keep(self, effects: Effects) -> None:
        self.grid = copy(effects.grid)
        self.jobs |= {key: copy(job) for key, job in effects.jobs.items()}
        self.tasks |= {key: copy(task) for key, task in effects.tasks.items()}
        self.attempts |= {key: copy(attempt) for key, attempt in effects.attempts.items()}
        self.workers |= {key: copy(worker) for key, worker in effects.workers.items()}
        for forgotten in effects.forgotten:
            self.programs.pop(forgotten, None)
        for launch in effects.dropped(Gang):
            self.gangs.pop(launch, None)
        if effects.forgotten_jobs:
            self._forget_jobs(set(effects.forgotten_jobs))
        for name in effects.gone:
            self.workers.pop(name, None)
            self.carriers.pop(name, None)
            self.sleepers.pop(name, None)
        self.gangs |= {key: copy(gang) for key, gang in effects.rows(Gang).items()}
        self.plans |= {key: copy(plan) for key, plan in effects.rows(Plan).items()}
        self.carriers |= {key: copy(carrier) for key, carrier in effects.rows(Carrier).items()}
        self.sleepers |= {key: copy(sleeper) for key, sleeper in effects.rows(Sleeper).items()}
        self.users |= {key: copy(user) for key, user in effects.rows(User).items()}
        for gone in effects.dropped(Limit):
            self.limits.pop(gone, None)
        self.limits |= {key: copy(limit) for key, limit in effects.rows(Limit).items()}
        for outdated in effects.dropped(SavedCheckpoint):
            self.checkpoints.pop(outdated, None)
        self.checkpoints |= {key: copy(saved) for key, saved in effects.rows(SavedCheckpoint).items()}
        self.resumed |= {key: copy(resumed) for key, resumed in effects.rows(ResumedAttempt).items()}
        self.checkpoint_accounts |= {key: copy(account) for key, account in effects.rows(CheckpointAccount).items()}
        self.energies |= effects.rows(AttemptEnergy)
        self.broken += effects.told(BrokenPromise)
        self.programs |= {key: copy(program) for key, program in effects.programs.items()}
        self.exemptions |= {(e.job, e.since, e.reason): e for e in effects.told(Exemption)}
        self.evidence |= {(e.job, e.since, e.reason): e for e in effects.told(Evidence)}
        for worker, result in effects.late:
            self._keep_late(worker, result)

    def snapshot(self) -> Snapshot:
        """Return the rows that a master finds when it starts now."""
        attempts = [a for a in self.attempts.values() if not a.is_over]
        busy_jobs, busy_tasks = {a.job for a in attempts}, {a.task_id for a in attempts}
        jobs = [job for job in self.jobs.values() if not job.is_over or job.id in busy_jobs]
        live, ids = {job.id for job in jobs if job.is_live}, {job.id for job in jobs}
        tasks = [t for t in self.tasks.values() if (t.job in live and t.is_open) or t.id in busy_tasks]
        started = {
            job_id: IntervalSet.of(t.number for t in self.tasks.values() if t.job == job_id and t.started)
            for job_id in ids
        }
        return Snapshot(
            grid=copy(self.grid),
            jobs=[copy(job) for job in jobs],
            tasks=[copy(task) for task in tasks],
            attempts=[copy(attempt) for attempt in attempts],
            workers=[copy(worker) for worker in self.workers.values()],
            started={job_id: ranges.pairs() for job_id, ranges in started.items()},
            programs=[copy(program) for program in self.programs.values()],
            gangs=[copy(gang) for gang in self.gangs.values()],
            plans=[copy(plan) for plan in self.plans.values() if not plan.is_over],
            carriers=[copy(carrier) for carrier in self.carriers.values()],
            sleepers=[copy(sleeper) for sleeper in self.sleepers.values()],
            users=[copy(user) for user in self.users.values()],
            limits=[copy(limit) for limit in self.limits.values()],
            checkpoints=[copy(saved) for saved in self.checkpoints.values() if saved.job in live],
            resumed=[copy(resumed) for resumed in self.resumed.values() if not self.attempts[resumed.id].is_over],
            checkpoint_accounts=[
                copy(account)
                for account in self.checkpoint_accounts.values()
                if not self.attempts[account.id].is_over
            ],
        )

    def retry_material(self, job_id: int) -> tuple[Job, list[Task], list[tuple[int, int]]]:
        tasks = [copy(t) for t in self.tasks.values() if t.job == job_id and t.winner is None]
        succeeded = IntervalSet.of(t.number for t in self.tasks.values() if t.job == job_id and t.winner is not None)
        return copy(self.jobs[job_id]), tasks, succeeded.pairs()

    def replayed(self) -> MemoryStore:
        """Return the rows that the log alone leads to."""
        fresh, scheduler = MemoryStore(), Scheduler()
        for line in self.log:
            batch = BATCH.validate_json(line)
            fresh.keep(scheduler.step(batch.events, batch.now))
        return fresh

    def is_exempt(self, earlier: Job, later: Job) -> bool:
        """True if the earlier job held no other back as the later one was released."""
        return any(one.job == earlier.id and one.covers(later) for one in self.exemptions.values())

    def _forget_jobs(self, gone: set[int]) -> None:
        self.jobs = {job: row for job, row in self.jobs.items() if job not in gone}
        self.tasks = {task: row for task, row in self.tasks.items() if task.job not in gone}
        self.attempts = {attempt: row for attempt, row in self.attempts.items() if attempt.job not in gone}
        self.plans = {task: row for task, row in self.plans.items() if task.job not in gone}
        self.energies = {key: row for key, row in self.energies.items() if key[0] not in gone}
        self.exemptions = {key: row for key, row in self.exemptions.items() if key[0] not in gone}

    def _keep_late(self, worker: str, result: Result) -> None:
        row = self.attempts.get(result.attempt)
        if row is not None and row.worker == worker and row.state is AttemptState.LOST:
            self.attempts[row.id] = replace(row, state=END[result.outcome], exit_code=result.exit_code, late=True)

    def _check_evidence(self, evidence: Evidence) -> None:
        """Check that evidence founds its exemption, as the master's audit does."""
        its = [one for one in self.attempts.values() if one.job == evidence.job]
        under_way, measured = [one for one in its if not one.is_over], sum(one.work for one in its)
        earlier = (e for e in self.evidence.values() if e.job == evidence.job and e.since < evidence.since)
        known = [work for one in earlier for work in one.attempts]
        exemption = self.exemptions[evidence.job, evidence.since, evidence.reason]
        flaw = flaw_of(
            evidence,
            self.jobs[evidence.job],
            measured,
            under_way,
            self.workers,
            known,
            has_ended=exemption.until is not None,
        )
        assert not flaw, f"the exemption {evidence} is unfounded: {flaw}"

    def _audit(self, job: Job) -> None:
        """Record each passing by its definition (no-passing paper), checked against the rows as they are."""
        for other in self.jobs.values():
            came_first = UNRELEASED != other.arrival < job.arrival
            is_there = other.departure is None or other.departure > (job.departure or 0)
            excused = self.is_exempt(other, job) or not job.is_ordered_after(other)
            is_ordered = Order.NONE not in (job.order, other.order)
            weight = job.shown if job.size is None else job.size
            is_counted = is_ordered and other.size is not None and (weight is None or other.size <= weight)
            if came_first and is_there and is_counted and not excused:
                self.passings.append((job.id, other.id))


def _is_empty(effects: Effects) -> bool:
    """True if no row but that of the grid has changed."""
    of_kernel = effects.jobs or effects.tasks or effects.attempts or effects.workers or effects.programs
    of_wings = any(effects.of_wings.values()) or effects.dropped_by_wings or effects.told(Exemption)
    return not (of_kernel or of_wings or effects.late or effects.gone or effects.forgotten_jobs)
