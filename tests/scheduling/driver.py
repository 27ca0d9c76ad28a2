"""A small grid for tests: the real scheduler, a store in memory, and workers whose every frame the test decides.

``Grid`` follows the order of a live master: it checks the invariants after each step, commits rows, and only then
delivers frames. A worker executes frames at once; its processes end when the test says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loopline_master.core.events import (
    Batch,
    Event,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkersHeard,
)
from loopline_master.core.kernel.effects import Declined, Effects, Reply, Submitted
from loopline_master.core.kernel.entities import Attempt, Job, Task
from loopline_master.core.kernel.invariants import check, check_job, check_started, check_worker
from loopline_master.core.scheduler import Scheduler
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptId, Facts, Held, JobState, Load, Outcome, Result, TaskId, WithheldGpu
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.gang_messages import Member, MemberOrder, Word
from loopline_shared.protocol.power import GoodBye
from loopline_shared.protocol.worker_link import Assign, Report, Run
from loopline_shared.spec import JobSpec
from loopline_simulator.full.store import MemoryStore
from tests.campaign import CHECK_EVERY, LONG

START = 1000.0
STORY = 20
"""Steps of a grid that are all checked; if it lives on, it is from there on as seldom as campaign.py has it."""


def spec(count: int = 1, size: float | None = None, requires: dict[str, Any] | None = None, **more: Any) -> JobSpec:
    """A job of ``count`` tasks."""
    parameters = {"i": Range(range=[1, count])} if count > 1 else None
    needs = Requirements(**requires or {})
    return JobSpec(command=["work"], parameters=parameters, size=size, requires=needs, **more)


def facts(
    slots: int = 1,
    *,
    os: str = "linux",
    memory_bytes: int = 8 * 10**9,
    labels: Iterable[str] = (),
    gangs: bool = False,
) -> Facts:
    return Facts(
        os,
        "x86_64",
        "3.11.0",
        "0",
        "model",
        cpus=slots,
        memory_bytes=memory_bytes,
        slots=slots,
        labels=tuple(labels),
        gangs=gangs,
    )


def result(attempt: AttemptId, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> Result:
    return Result(attempt, outcome, 0 if outcome is Outcome.SUCCEEDED else 1, **more)


@dataclass
class Agent:
    """One worker as its agent knows it."""

    facts: Facts
    session: int
    sent: int = 0  # its last Report
    seen: int = 0  # number of the last Assign carried out
    running: dict[AttemptId, Run] = field(default_factory=dict)
    killed: list[AttemptId] = field(default_factory=list)  # killed on the master's request, not yet reported
    preempted: list[AttemptId] = field(default_factory=list)  # those of them that are given back
    mail: list[Assign] = field(default_factory=list)  # under way to it
    members: dict[AttemptId, Run] = field(default_factory=dict)  # of gangs: prepared, they wait for their start
    frozen: set[AttemptId] = field(default_factory=set)  # on the master's request
    words: list[Word] = field(default_factory=list)  # Assigns received
    delivering: set[AttemptId] = field(default_factory=set)  # ended, with results still to be delivered
    withheld_gpus: tuple[WithheldGpu, ...] = ()

    def waiting(self) -> list[AttemptId]:
        """Attempts without a slot; slots go to them in the order of their arrival."""
        free, waiting = self.facts.slots, []
        for attempt, run in self.running.items():
            slots = run.slots if run else 1
            waiting += [attempt] if slots > free else []
            free -= slots if slots <= free else 0
        return waiting

    def take(self, assign: Assign) -> None:
        assert assign.seq == self.seen + 1, "frames of a session are numbered consecutively"
        self.seen = assign.seq
        for run in assign.run:
            if run.attempt not in self.running:
                tasks = [attempt.task_id for attempt in self.running]
                assert run.attempt.task_id not in tasks, f"{run.attempt}: two attempts of one task on one worker"
                (self.members if run.gang else self.running)[run.attempt] = run
        for word in assign.words:
            self.hear(word)
        held = [one for one in assign.cancel if one in self.running or one in self.members]
        self.preempted += [one for one in held if one in assign.preempt and one in self.frozen]
        gone = [one for one in held if one not in assign.preempt or one in self.frozen]
        for attempt in gone:
            self.running.pop(attempt, None)
            self.members.pop(attempt, None)
        self.killed += gone

    def hear(self, word: Word) -> None:
        self.words.append(word)
        match word.order:
            case MemberOrder.START if word.attempt in self.members:
                self.running[word.attempt] = self.members.pop(word.attempt)
            case MemberOrder.FREEZE:
                self.frozen.add(word.attempt)
            case MemberOrder.THAW:
                self.frozen.discard(word.attempt)


class Grid:
    def __init__(self, **chosen: Any) -> None:
        self.settings = SchedulerSettings(**{"single_task_order": "hold", **chosen})  # as in the paper's Figure 1
        self.scheduler, self.store = Scheduler(), MemoryStore()
        self.agents: dict[str, Agent] = {}
        self.now, self.sessions, self.steps = START, 0, 0
        self.last = self.step(MasterStarted(self.settings))

    # --- one step -------------------------------------------------------------------------------------------

    def step(self, *events: Event, deliver: bool = True) -> Effects:
        effects = self.scheduler.step(events, self.now)
        self.steps += 1
        if self.steps <= STORY or self.steps % CHECK_EVERY == 0:
            check(self.scheduler.state)
        self._sample()
        for attempt in effects.attempts.values():
            if attempt.id not in self.store.attempts:
                check_started(self.scheduler.state, attempt)
        self.store.commit(Batch(self.now, list(events)), effects)
        assert len(effects.replies) == len(events), "one reply an event"
        for name, session in effects.closes:
            assert session <= self.agents[name].session
        for name, assign in effects.assigns.items():
            self.agents[name].mail.append(assign)
        if deliver:
            self.deliver()
        self.last = effects
        return effects

    def _sample(self) -> None:
        """Run a live master's occasional checks on one job and one worker, or on all of them in a long run."""
        state = self.scheduler.state
        jobs, workers = list(state.jobs), list(state.workers)
        for job in jobs if LONG else jobs and [jobs[self.steps % len(jobs)]]:
            check_job(state, job)
        for worker in workers if LONG else workers and [workers[self.steps % len(workers)]]:
            check_worker(state, worker)

    def deliver(self) -> None:
        """Deliver all frames in flight."""
        for agent in self.agents.values():
            while agent.mail:
                agent.take(agent.mail.pop(0))

    def ask(self, event: Event) -> Reply:
        return self.step(event).replies[0]

    def wait(self, seconds: float) -> Effects:
        """Let time pass; the engine wakes if the scheduler asked to be woken by then."""
        self.now += seconds
        wake_at = self.scheduler.wake_at
        return self.step() if wake_at is not None and wake_at <= self.now else Effects(self.scheduler.state.grid)

    def restart(self) -> Effects:
        """Restart the master from its rows; all links are closed."""
        self.scheduler = Scheduler(self.store.snapshot())
        return self.step(MasterStarted(self.settings))

    # --- users ----------------------------------------------------------------------------------------------

    def submit(self, count: int = 1, size: float | None = None, **more: Any) -> int:
        return self.submit_spec(spec(count, size, **more))

    def submit_spec(self, job: JobSpec) -> int:
        reply = self.ask(JobSubmitted("user", job, ended=self.ended(job.after)))
        assert isinstance(reply, Submitted), reply
        return reply.job

    def declined(self, event: Event) -> Declined:
        """Step an event that must be declined without a change to the scheduler's state."""
        reply = self.ask(event)
        assert isinstance(reply, Declined), reply
        assert not self.last.jobs
        assert not self.last.attempts
        return reply

    def retry_event(self, job: int) -> JobRetried:
        return JobRetried(*self.store.retry_material(job), ended=self.ended(self.store.jobs[job].spec.after))

    def ended(self, jobs: Iterable[int]) -> dict[int, JobState]:
        """Read from the rows, as a request handler does."""
        return {job: self.store.jobs[job].state for job in jobs if self.store.jobs[job].is_over}

    # --- workers --------------------------------------------------------------------------------------------

    def join(self, name: str, own: Facts | None = None, *, reports: bool = True) -> Effects:
        """Open a (new) session; the worker's attempts keep running. ``reports``: send its first Report too."""
        known = self.agents.get(name)
        chosen = own or (known.facts if known else facts())
        self.sessions += 1
        agent = Agent(chosen, self.sessions)
        if known is not None:
            agent.running, agent.killed = known.running, known.killed
            agent.members, agent.frozen, agent.delivering = known.members, known.frozen, known.delivering
            agent.withheld_gpus = known.withheld_gpus
        self.agents[name] = agent
        effects = self.step(WorkerJoined(name, agent.session, "boot", chosen))
        return self.report(name) if reports else effects

    def workers(self, *names: str, slots: int = 1, gangs: bool = False) -> None:
        for name in names:
            self.join(name, facts(slots, gangs=gangs))

    def leave(self, name: str) -> Effects:
        return self.step(WorkerLeft(name, self.agents[name].session))

    def reboot(self, name: str) -> None:
        """Its processes and its spool are gone, and it has not reconnected yet."""
        self.agents[name].running, self.agents[name].killed, self.agents[name].members = {}, [], {}
        self.agents[name].delivering = set()

    def report(
        self,
        name: str,
        *results: Result,
        holding: Iterable[AttemptId] | None = None,
        seen: int | None = None,
        slots: int | None = None,
        frozen: bool = False,
        deliver: bool = True,
        spare_cpu: float | None = None,
        ready: bool = True,
        lies: bool = False,
        clock: tuple[float, float] = (0.0, 0.0),
        good_bye: GoodBye | None = None,
        in_use: bool = False,
        idle_s: float | None = None,
    ) -> Effects:
        """Step the worker's next Report: these results, and by default its actual attempts (killed ones confirmed).

        ``holding``, if given, replaces its attempts; killed ones are then confirmed only by their absence.
        ``frozen``: its owner is back and all its attempts are frozen. ``spare_cpu``: cores that the owner does not
        use; None: all. ``ready``: gang members waiting there are prepared. ``lies``: the clock does not move;
        otherwise it advances until the results are possible, while all other workers keep reporting. ``clock``: the
        run time of its attempts, and their time in their slots, in seconds.
        """
        agent, (wall_s, in_slot_s) = self.agents[name], clock
        for each in results:
            agent.running.pop(each.attempt, None)
            agent.members.pop(each.attempt, None)
            agent.delivering.discard(each.attempt)
        if holding is None:
            results += tuple(
                result(one, Outcome.GIVEN_BACK if one in agent.preempted else Outcome.CANCELLED)
                for one in agent.killed
            )
            holding = list(agent.running)
        held, agent.killed = list(holding), []
        agent.running = {attempt: run for attempt, run in agent.running.items() if attempt in held}
        waiting = agent.waiting()
        agent.sent += 1
        said = Report(
            agent.sent,
            agent.seen if seen is None else seen,
            tuple(
                Held(a, wall_s, frozen=frozen or a in agent.frozen, in_slot_s=in_slot_s)
                for a in held
                if a not in waiting
            ),
            results,
            Load(
                agent.facts.slots if slots is None else slots,
                spare_cpu=float(agent.facts.slots) if spare_cpu is None else spare_cpu,
                withheld_gpus=agent.withheld_gpus,
                in_use=in_use,
                idle_s=idle_s,
            ),
            waiting=ranges_of(a for a in held if a in waiting),
            delivering=ranges_of(sorted(agent.delivering)),
            members=tuple(Member(a, is_ready=ready, port=4000) for a in agent.members),
            good_bye=good_bye,
        )
        reported = WorkerReported(name, agent.session, said)
        ended_at = 0.0 if lies else max(map(self._ended_at, results), default=0.0)
        if ended_at <= self.now:
            return self.step(reported, deliver=deliver)
        self.now = ended_at
        state = self.scheduler.state
        others = {one.name: 0.0 for one in state.workers.values() if one.session is not None and one.reported}
        effects = self.step(WorkersHeard(others, self.settings.lease_s), reported, deliver=deliver)
        effects.replies.pop(0)
        return effects

    def _ended_at(self, result: Result) -> float:
        attempt = self.scheduler.state.attempts.get(result.attempt)
        return 0.0 if attempt is None else attempt.dispatched_at + max(result.wall_s, result.cpu_s)

    def end(self, attempt: AttemptId, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> Effects:
        """End this attempt's process; its worker reports the result."""
        name = next(name for name, agent in self.agents.items() if attempt in agent.running)
        return self.report(name, result(attempt, outcome, **more))

    def delivers(self, attempt: AttemptId, **more: Any) -> Effects:
        """End this attempt's process; its worker begins to deliver the result."""
        name = next(name for name, agent in self.agents.items() if attempt in {**agent.running, **agent.members})
        self.agents[name].running.pop(attempt, None)
        self.agents[name].members.pop(attempt, None)
        self.agents[name].delivering.add(attempt)
        return self.report(name, **more)

    # --- queries --------------------------------------------------------------------------------------------

    def running(self, name: str) -> list[AttemptId]:
        return list(self.agents[name].running)

    def waiting(self, name: str) -> list[AttemptId]:
        return self.agents[name].waiting()

    def attempts_of(self, task: TaskId) -> list[AttemptId]:
        """Attempts of the task that run on any worker."""
        return [a for agent in self.agents.values() for a in agent.running if a.task_id == task]

    def job(self, job: int) -> Job:
        return self.store.jobs[job]

    def task(self, job: int, number: int = 1) -> Task:
        return self.store.tasks[TaskId(job, number)]

    def attempt(self, job: int, task: int = 1, number: int = 1) -> Attempt:
        return self.store.attempts[AttemptId(job, task, number)]
