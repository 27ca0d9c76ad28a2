"""The wing *gangs*: tasks that run on several workers at once, planned ahead and started together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from loopline_master.core.events import SnapshotWritten
from loopline_master.core.kernel.door.mechanism import Handler, Lead, Purpose, Tell, Veto
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.kernel_events import MasterStarted
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.wings.gangs import launch, members, phases, replicas, words
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_master.core.wings.gangs.gang_checks import check_gang
from loopline_master.core.wings.gangs.gang_memory import GangIndex, GangMemory
from loopline_master.core.wings.gangs.phases import gang_of
from loopline_master.core.wings.gangs.planning.live import Planning
from loopline_master.core.wings.gangs.planning.plan import Plan, PlanKind
from loopline_shared.model import AttemptState, Result, TaskId
from loopline_shared.protocol.gang_messages import GangPlace, Word
from loopline_shared.protocol.worker_link import Report

_DELAYS_A_GANG = Veto("gang", spends_turn=True)
_PLANNED = Veto("gang")


class Gangs(Wing, Lead):
    """Awake while a job of several nodes is in memory."""

    reported = ("members",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._memory = GangMemory()
        state.keep(self._memory)
        state.lead, self.launches = self, self._memory.gangs
        self.planning = Planning(state)

    @property
    def is_awake(self) -> bool:
        memory = self._memory
        return bool(memory.gangs or memory.plans or self.state.index.parallel or self.planning.book)

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {Gang: self._note_gang, Plan: self._note_plan}

    def restore(self, rows: Rows) -> None:
        self._memory.plans |= {plan.job: plan for plan in rows.of(Plan)}
        for gang in rows.of(Gang):
            self._memory.gangs[gang.id] = gang
            self._memory.index.place(gang.id, gang, self.state.jobs[gang.job])

    def handlers(self) -> Mapping[type, Handler]:
        return {MasterStarted: self._open, SnapshotWritten: self._open}

    def _open(self, event: MasterStarted | SnapshotWritten, tell: Tell) -> None:
        self.planning.open()

    def _note_gang(self, gang: Gang) -> None:
        self._memory.note_gang(gang, self.state.jobs[gang.job], self.state.effects)

    def _note_plan(self, plan: Plan) -> None:
        self._memory.note_plan(plan, self.state.effects)

    def needs(self, worker: Worker) -> bool:
        """True if a plan names the worker."""
        return any(worker.name in plan.machines for plan in self._memory.plans.values())

    def excuses(self, job: Job) -> bool:
        plan = self._memory.plans.get(job.id)
        return plan is not None and plan.kind is PlanKind.PROMISE and (plan.start or 0.0) > self.state.now

    def brings_news(self, worker: Worker, report: Report) -> bool:
        """True if a member of a gang may need a word."""
        if report.members:
            return True
        frozen = {held.attempt: held.frozen for held in report.holding} if self._memory.gangs else {}
        for number, is_frozen in frozen.items():
            attempt = self.state.attempts.get(number)
            gang = gang_of(self.state, attempt) if attempt is not None else None
            if gang is not None and (is_frozen or gang.phase is not GangPhase.RUNNING):
                return True
        return False

    # Time, and the starts of a step.

    def due_at(self) -> float | None:
        """Return the time when a launch times out, a gang is due, or the plans must be revised."""
        times = [at for at in (phases.wake_at(self.state), self.planning.wake_at) if at is not None]
        return min(times, default=None)

    def expire(self) -> None:
        phases.expire(self.state)

    def place(self) -> Iterator[None]:
        """Revise the plans, and begin the due ones."""
        if not (self.state.index.parallel or self._memory.plans or self.planning.book):
            return
        self.planning.revise()
        yield
        for plan, job, workers in self.planning.due():
            launch.begin(self.state, job, plan.task, workers)
            yield
            self.planning.note_started(plan)

    def replicate(self) -> Iterator[None]:
        return replicas.begin(self.state)

    def finish_step(self) -> None:
        self.planning.finish_step()
        if not self.is_awake:
            self.state.wings.arrange()

    def veto(self, job: Job, task: int, worker: Worker, purpose: Purpose) -> Veto | None:
        if purpose is Purpose.PREFETCH:
            return _PLANNED if self.planning.is_planned_on(worker.name) else None
        return None if self.planning.may_go_first(job, task, worker) else _DELAYS_A_GANG

    # The lead of members.

    def leads(self, attempt: Attempt) -> bool:
        return gang_of(self.state, attempt) is not None

    def has_launch(self, task: TaskId) -> bool:
        return task in self._memory.index.launches

    def job_placed(self, job: Job) -> None:
        if self.is_awake and self not in self.state.wings.awake:
            self.state.wings.arrange()

    def take_result(self, attempt: Attempt, result: Result) -> None:
        phases.take_result(self.state, attempt, result)

    def lose(self, attempt: Attempt, reason: str, *, for_good: bool) -> None:
        phases.lose(self.state, attempt, reason, for_good=for_good)

    def come_back(self, attempt: Attempt, new: AttemptState) -> None:
        phases.come_back(self.state, attempt, new)

    def note_members(self, report: Report, attempts: Sequence[Attempt]) -> list[Attempt]:
        return members.note(self.state, report, attempts)

    def follow(self, worker: Worker, seen: int) -> None:
        for attempt in list(self.state.index.attempts.of_worker.get(worker.name, {}).values()):
            phases.follow(self.state, attempt, seen)

    def end_job(self, job: Job, reason: str, *, if_it_runs: bool) -> None:
        phases.disband_job(self.state, job, reason, if_it_runs=if_it_runs)

    def place_of(self, attempt: Attempt) -> GangPlace | None:
        return launch.place_of(self.state, attempt, self.state.jobs[attempt.job].nodes)

    def word_for(self, attempt: Attempt, worker: Worker) -> Word | None:
        return words.word_for(self.state, attempt, worker)

    def check(self, of: Job | Worker | None) -> None:
        gangs = self._memory.gangs
        if isinstance(of, Worker):
            return
        if of is None:
            rebuilt = GangIndex()
            for gang in gangs.values():
                rebuilt.place(gang.id, gang, self.state.jobs[gang.job])
            assert self._memory.index == rebuilt, f"the gangs' index is {self._memory.index}, rebuilt {rebuilt}"
        for gang in gangs.values():
            if of is None or gang.job == of.id:
                check_gang(self.state, gang)
