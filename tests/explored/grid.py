"""One state of a tiny grid, and every event that may happen in it.

A state is a value: the rows on the master's disk, the agents, and the events that are left. To apply an event, the
real scheduler is restored from the rows, or the scheduler that wrote them continues. It takes one step, which is
checked, and the rows that it commits make the next state. (A restore takes 0.5 ms, half of an event with its checks.
Replaying the path to a state takes longer, and ``deepcopy`` refuses a scheduler.)

Time advances only to the next deadline: the end of a silent worker's lease, or the time when a wing is due. Connected
workers have reported until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from loopline_master.core.events import (
    Event,
    JobCancelled,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkersHeard,
)
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import LIVE, Job
from loopline_master.core.kernel.invariants import check, check_started
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.exemptions.exemption import Evidence
from loopline_master.core.wings.gangs.gang_wing import Gangs
from loopline_master.core.wings.leases.kept_back import brings_news
from loopline_master.core.wings.resources.limit import Limit
from loopline_shared.model import AttemptId, Facts, Outcome, TaskId, TaskState
from loopline_shared.protocol.power import GoodBye, SleepCause, SleepKind
from loopline_shared.spec import JobSpec
from loopline_simulator.full import ending
from loopline_simulator.full.store import MemoryStore
from tests.explored.agent import Agent

START = 1000.0
"""Time of the first step."""
GOOD_BYE = GoodBye(SleepKind.SUSPEND, SleepCause.IDLE)


class Rows(MemoryStore):
    """Rows that several states may share: a commit replaces them, and never changes one in place.

    ``schedulers`` are in exactly this state. One wrote the rows, the others were restored. Each can take one step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.schedulers: list[Scheduler] = []

    @cached_property
    def kept(self) -> Snapshot:
        """The rows that a master finds when it starts now; not to be changed."""
        return self.snapshot()

    def restored(self, settings: SchedulerSettings | None = None) -> Scheduler:
        """Return a new scheduler: of a master that starts, or with ``settings`` in the middle of its life."""
        scheduler = Scheduler(_copied(self.kept))
        if settings is not None:
            scheduler.set_policy(settings)
            scheduler.state.wings[Gangs].planning.open()
        return scheduler

    def read(self, settings: SchedulerSettings) -> Scheduler:
        """Return a scheduler that knows these rows, not to be stepped."""
        if not self.schedulers:
            self.schedulers.append(self.restored(settings))
        return self.schedulers[0]

    def after(self, effects: Effects, scheduler: Scheduler) -> Rows:
        """Return the rows after a commit. Raises AssertionError on a passing or an unfounded exemption."""
        fresh = Rows()
        for name, value in vars(self).items():
            if name not in ("kept", "schedulers"):
                setattr(fresh, name, copy(value))
        fresh.keep(effects)
        for evidence in effects.told(Evidence):
            fresh._check_evidence(evidence)
        for job in effects.completed:
            fresh._audit(fresh.jobs[job])
        assert not fresh.passings, f"these jobs passed others: {fresh.passings}"
        fresh.schedulers.append(scheduler)
        return fresh


def _copied(kept: Snapshot) -> Snapshot:
    """Return a snapshot whose entities may be changed."""
    return Snapshot(**{name: [*map(_copy, rows)] if isinstance(rows, list) else rows for name, rows in _parts(kept)})


def _parts(kept: Snapshot) -> Iterator[tuple[str, Any]]:
    yield "grid", _copy(kept.grid)
    for name in Snapshot.__slots__:
        if name != "grid":
            yield name, getattr(kept, name)


def _copy(row: Any) -> Any:
    """Return a shallow copy of a row, in a fraction of the time that ``copy`` takes."""
    kind = row.__class__
    fresh = kind.__new__(kind)
    for name in kind.__slots__:
        setattr(fresh, name, getattr(row, name))
    return fresh


@dataclass(frozen=True)
class Left:
    """Events that may still happen, each this many times."""

    failures: int = 0  # of attempts, through the task's own fault
    cuts: int = 0  # of links; half of them are noticed by the master
    reboots: int = 0  # of computers whose link is cut
    sleeps: int = 0  # of computers, after a good-bye
    restarts: int = 0  # of the master, from its rows; all frames under way are lost
    cancels: int = 0  # of jobs
    deadlines: int = 0  # that time advances to

    def less(self, **used: int) -> Left:
        return replace(self, **{name: getattr(self, name) - count for name, count in used.items()})


@dataclass(frozen=True)
class Configuration:
    """A grid and the events that may happen there."""

    name: str
    jobs: Mapping[str, JobSpec]  # by name, which is also the spec's
    workers: Mapping[str, Facts]
    left: Left
    settings: SchedulerSettings
    limits: tuple[Limit, ...] = ()
    in_order: bool = False  # jobs are submitted in the order of ``jobs``; otherwise in every order

    def first(self) -> GridState:
        """Return the first state: all workers are connected, and no job has been submitted."""
        rows = Rows()
        rows.limits = {(one.name, one.user): one for one in self.limits}
        agents = {name: Agent(name, facts) for name, facts in self.workers.items()}
        empty = GridState(self, rows, agents, START, 0, self.left, tuple(self.jobs))
        state = empty._stepped([MasterStarted(self.settings)], scheduler=rows.restored())
        for name in self.workers:
            state = state._connect(state.agents[name])
        return state


@dataclass
class GridState:
    """See the module."""

    about: Configuration
    rows: Rows
    agents: dict[str, Agent]
    now: float
    sessions: int
    left: Left
    to_submit: tuple[str, ...]

    # --- events -----------------------------------------------------------------------------------------------

    def events(self) -> Iterator[tuple[str, Callable[[], GridState]]]:
        """Yield every event that may happen now, in words and as a function to the state after it."""
        to_submit = self.to_submit[:1] if self.about.in_order else self.to_submit
        for name in to_submit:
            yield f"job {name} is submitted", partial(self._submit, name)
        for agent in self.agents.values():
            yield from self._events_of(agent)
        if self.left.cancels:
            for job in self.rows.jobs.values():
                if job.is_live:
                    yield f"job {job.id} ({job.spec.name}) is cancelled", partial(self._cancel, job)
        if self.left.deadlines and (until := self._next_deadline()) is not None:
            yield f"{until - self.now:g} s pass, until the next deadline", partial(self._wait, until)
        if self.left.restarts and (self.rows.jobs or self.rows.workers):
            yield "the master restarts from its rows", self._restart

    def _events_of(self, agent: Agent) -> Iterator[tuple[str, Callable[[], GridState]]]:
        name = agent.name
        if agent.mail:
            yield f"{name} receives {_in_words(agent)}", partial(self._deliver, agent)
        if agent.has_news:
            yield f"{name} reports", partial(self._report, agent)
        for attempt in sorted(agent.begun - agent.frozen):
            yield f"{attempt} succeeds on {name}", partial(self._end, agent, attempt, Outcome.SUCCEEDED)
            if self.left.failures:
                yield f"{attempt} fails on {name}", partial(self._end, agent, attempt, Outcome.FAILED)
        if agent.session and self.left.sleeps:
            yield f"{name} goes to sleep", partial(self._sleep, agent)
        if agent.session and self.left.cuts:
            yield f"the link of {name} breaks", partial(self._cut, agent, noticed=True)
            yield (
                f"the link of {name} breaks, and the master does not notice",
                partial(self._cut, agent, noticed=False),
            )
        if not agent.session:
            yield f"{name} connects", partial(self._connect, agent)
            if self.left.reboots and (agent.held or agent.members):
                yield f"{name} is rebooted", partial(self._reboot, agent)

    def _submit(self, name: str) -> GridState:
        submitted = replace(self, to_submit=tuple(one for one in self.to_submit if one != name))
        return submitted._stepped([JobSubmitted("user", self.about.jobs[name])])

    def _cancel(self, job: Job) -> GridState:
        return replace(self, left=self.left.less(cancels=1))._stepped([JobCancelled(job.id)])

    def _deliver(self, agent: Agent) -> GridState:
        after, forgotten = agent.delivered()
        for one in forgotten:
            row = self.rows.attempts[one.attempt]
            assert row.state not in LIVE, f"the result of {row.id} was acknowledged, but it is {row.state}"
        return self._with(after)

    def _report(self, agent: Agent) -> GridState:
        after, report = agent.report()
        return self._with(after)._stepped([WorkerReported(agent.name, agent.session, report)])

    def _end(self, agent: Agent, attempt: AttemptId, outcome: Outcome) -> GridState:
        """End a process. A connected agent reports it at once: a late Report looks like a late end."""
        left = self.left.less(failures=outcome is Outcome.FAILED)
        after = agent.finished(attempt, outcome)
        ended = replace(self._with(after), left=left)
        return ended._report(after) if after.session and after.reports else ended

    def _cut(self, agent: Agent, *, noticed: bool) -> GridState:
        silent = replace(self._with(agent.cut()), left=self.left.less(cuts=1))
        return silent._stepped([WorkerLeft(agent.name, agent.session)]) if noticed else silent

    def _sleep(self, agent: Agent) -> GridState:
        """Say good-bye, which closes the link. The computer is back when it connects."""
        after, report = agent.report()
        asleep = replace(self._with(after), left=self.left.less(sleeps=1))
        return asleep._stepped([WorkerReported(agent.name, agent.session, replace(report, good_bye=GOOD_BYE))])

    def _connect(self, agent: Agent) -> GridState:
        """Open a link, and send its first Report: before that, the master gives the worker nothing."""
        connected = replace(self._with(agent.connected(self.sessions + 1)), sessions=self.sessions + 1)
        boot = f"boot-{agent.boots}"
        joined = connected._stepped([WorkerJoined(agent.name, connected.sessions, boot, agent.facts)])
        return joined._report(joined.agents[agent.name])

    def _reboot(self, agent: Agent) -> GridState:
        return replace(self._with(agent.rebooted()), left=self.left.less(reboots=1))

    def _restart(self) -> GridState:
        """Restart the master. A crash before a commit, or between a commit and its frames, leads to the same."""
        agents = {name: agent.cut() if agent.session else agent for name, agent in self.agents.items()}
        alone = replace(self, agents=agents, left=self.left.less(restarts=1))
        return alone._stepped([MasterStarted(self.about.settings)], scheduler=self.rows.restored())

    def _wait(self, until: float) -> GridState:
        """Let time pass. Connected workers have reported until then."""
        heard = {
            name: 0.0
            for name, worker in self.rows.workers.items()
            if worker.session is not None and worker.reported and self.agents[name].session
        }
        later = replace(self, now=until, left=self.left.less(deadlines=1))
        return later._stepped([WorkersHeard(heard, self.about.settings.lease_s)] if heard else [])

    # --- one step -----------------------------------------------------------------------------------------------

    def _stepped(self, events: list[Event], scheduler: Scheduler | None = None) -> GridState:
        """Return the state after a step, which is checked."""
        if scheduler is None:
            kept = self.rows.schedulers
            scheduler = kept.pop() if kept else self.rows.restored(self.about.settings)
        effects = scheduler.step(events, self.now)
        check(scheduler.state)
        for attempt in effects.attempts.values():
            if attempt.id not in self.rows.attempts:
                check_started(scheduler.state, attempt)
        assert len(effects.replies) == len(events), "one reply an event"
        rows = self.rows.after(effects, scheduler)
        agents = dict(self.agents)
        for name, session in effects.closes:
            if agents[name].session == session:
                agents[name] = agents[name].cut()
        for name, assign in effects.assigns.items():
            if agents[name].session:
                agents[name] = agents[name].posted(assign, is_safe=not (self.left.cuts or self.left.restarts))
        return replace(self, rows=rows, agents=agents)

    def _next_deadline(self) -> float | None:
        """Return the first time that anything waits for, beside the leases of workers that still report."""
        scheduler = self.rows.read(self.about.settings)
        connected = [name for name, agent in self.agents.items() if agent.session]
        heard = {self.rows.workers[name].lease_until for name in connected if name in self.rows.workers}
        leases = [at for at, name in scheduler.state.index.leases.order if name not in connected]
        others = [at for at in (scheduler.wake_at,) if at is not None and at not in heard]
        times = [at for at in (*leases, *others) if at > self.now]
        return min(times, default=None)

    def _with(self, agent: Agent) -> GridState:
        return replace(self, agents={**self.agents, agent.name: agent})

    # --- checks of a state --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError if the rows or the agents contradict the promises."""
        self._check_results()
        self._check_limits()
        self._check_agreement()

    @property
    def is_done(self) -> bool:
        """True if all jobs were submitted and have ended, and no process and no result is left."""
        jobs = self.rows.jobs.values()
        if self.to_submit or not all(job.is_over for job in jobs):
            return False
        return not any(agent.held or agent.members or agent.ended for agent in self.agents.values())

    def _check_results(self) -> None:
        accepted: dict[TaskId, int] = {}
        for attempt in self.rows.attempts.values():
            if attempt.accepted:
                accepted[attempt.task_id] = accepted.get(attempt.task_id, 0) + 1
        for task in self.rows.tasks.values():
            nodes = self.rows.jobs[task.job].nodes
            expected = nodes if task.state is TaskState.SUCCEEDED else 0
            found = accepted.get(task.id, 0)
            assert found == expected, f"task {task.id} has {found} accepted results; it is {task.state}"

    def _check_limits(self) -> None:
        """Check the limits by the processes that run, not by the belief of the master."""
        begun = [attempt for agent in self.agents.values() for attempt in agent.begun]
        for limit in self.rows.limits.values():
            held = sum(dict(self.rows.jobs[one.job].needs).get(limit.name, 0) for one in begun)
            assert held <= limit.units, f"{begun} hold {held} of {limit.units} {limit.name}"
        for job in self.rows.jobs.values():
            running = sum(one.job == job.id for one in begun)
            assert job.max_running is None or running <= job.max_running, f"job {job.id} runs {running} attempts"

    def _check_agreement(self) -> None:
        """Check that a link without frames under way is at rest: another Report would bring no news.

        Not so while a gang is prepared or halted: the master may have to repeat its word.
        """
        for name, agent in self.agents.items():
            worker = self.rows.workers.get(name)
            if worker is None or worker.session != agent.session or agent.is_busy:
                continue
            state = self.rows.read(self.about.settings).state
            _, report = agent.report()
            believed = [str(one.id) for one in state.attempts.values() if one.worker == name]
            said = f"{name} and the master disagree: it holds {agent.held}, and is believed to hold {believed}"
            assert not brings_news(state, state.workers[name], report), said

    def check_restart(self) -> None:
        """Check that the rows contain everything that the live scheduler knows."""
        restored = self.rows.restored(self.about.settings)
        for other in self.rows.schedulers:
            ending.check_restart_changes_nothing(other.state, restored.state)
        self.rows.schedulers.append(restored)


def _in_words(agent: Agent) -> str:
    assign = agent.mail[0]
    runs = [f"run {run.attempt}" for run in assign.run]
    cancels = [f"cancel {attempt}" for attempt in assign.cancel]
    words = [f"{word.order} {word.attempt}" for word in assign.words]
    return ", ".join([*runs, *cancels, *words]) or "an acknowledgement"
