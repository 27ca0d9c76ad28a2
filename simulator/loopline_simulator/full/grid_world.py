"""The whole grid, event by event: the real scheduler, both ends of the real link, and real workers.

The network cuts, drops and duplicates; workers reboot; the master crashes at any point between event and frame. The
world has no clock of its own: the property tests draw events at random, the timed world (timed.py) schedules them in
virtual time. Every step is checked, and so is each result that a worker may forget (AssertionError).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from loopline_master.core.events import (
    Batch,
    CheckpointsRecalled,
    Event,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    TransfersPlanned,
    WorkerDrained,
    WorkerForgotten,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkerUndrained,
)
from loopline_master.core.kernel.effects import Effects, Reply, Submitted
from loopline_master.core.kernel.entities import LIVE, Job
from loopline_master.core.kernel.invariants import check, check_started
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.leases.kept_back import KeptBack
from loopline_master.core.wings.transfers.carrier import NumberedRequest
from loopline_master.core.wings.transfers.transfer_memory import asked
from loopline_master.transfers.solver import FILLING
from loopline_shared.errors import ProtocolError
from loopline_shared.model import AttemptId, JobState
from loopline_shared.protocol.link_session import ANSWER
from loopline_shared.protocol.transfers import PeerTerms
from loopline_shared.protocol.worker_link import Assign, Hello, Report, Welcome
from loopline_shared.spec import JobSpec
from loopline_simulator.full import ending
from loopline_simulator.full.checkpoint_ledger import CheckpointLedger
from loopline_simulator.full.machine import CLOSED, Link, Machine
from loopline_simulator.full.machine_files import filled_in
from loopline_simulator.full.promises import SecondPlanner, check_promises
from loopline_simulator.full.store import MemoryStore

CRASHES = ("before step", "before commit", "before release")
"""Points in a turn where the master may crash."""


class GridWorld:
    """A master, its machines, and the links between them."""

    keeps_back = True
    """Reports without news are answered without a step, as a live master does."""
    snapshot_every = 0
    """Number of steps after which the log may begin with a snapshot; 0: never."""

    def __init__(
        self, settings: SchedulerSettings, machines: Sequence[Machine], *, now: float = 1000.0, check_every: int = 1
    ) -> None:
        """Check every ``check_every``-th step: each check costs O(everything)."""
        self.settings = settings
        self.machines = {machine.name: machine for machine in machines}
        self.now, self.sessions = now, 0
        self.store = MemoryStore()
        self.acknowledged: set[int] = set()  # jobs whose submission was answered
        self.answers: dict[str, Reply] = {}  # to submissions, by idempotency key
        self.inbox: list[Event] = []
        self.asked: NumberedRequest | None = None  # a requested plan of transfers
        self.is_up = False
        self.starts_named: set[AttemptId] = set()  # of gangs: the members of rank 0, as it was committed
        self.links: dict[int, Link] = {}  # open at the master's end, by number
        self._check_every, self._steps = check_every, 0
        self._second: SecondPlanner | None = None
        self._checkpoints = CheckpointLedger()
        for machine in machines:
            machine.boot()
        self.start_master()

    # --- the master -----------------------------------------------------------------------------------------

    def start_master(self) -> None:
        self.scheduler, self._second = Scheduler(self.store.snapshot()), None
        self.kept_back = KeptBack(self.scheduler.state)
        self.inbox, self.is_up, self.asked = [MasterStarted(self.settings)], True, None
        self.turn()

    def master_steps(self, crash: str = "") -> list[Reply]:
        """Run one turn of the engine, which may crash before its step, its commit or its frames; it is restarted at
        once.
        """
        effects = self.turn(crash)
        if effects is None:
            self.start_master()
            return []
        return effects.replies

    def turn(self, crash: str = "") -> Effects | None:
        """Step, commit, then send. Return the effects; None if the master crashed and must be started again."""
        events, self.inbox = self.inbox, []
        if crash == "before step":
            self._die()
            return None
        self._steps += 1
        is_checked = self._steps % self._check_every == 0
        events = [*self.kept_back.silence_events(events, self.now), *events]
        if self.snapshot_every and self._steps % self.snapshot_every == 0:
            events.insert(0, self.scheduler.snapshot_event())
        effects = self._step(events, is_checked=is_checked)
        self.asked = asked(effects) or self.asked
        if crash == "before commit":
            self._die()
            return None
        self._checkpoints.check(self.store.attempts, effects, self.scheduler.state)
        self.store.commit(Batch(self.now, events), effects)
        self._checkpoints.commit(effects)
        self.starts_named |= {
            gang.member(0) for gang in effects.rows(Gang).values() if gang.phase is GangPhase.RUNNING
        }
        assert not self.store.passings, f"passings: {self.store.passings}"
        if crash == "before release":
            self._die()
            return None
        self._release(events, effects)
        if is_checked:
            self._second = SecondPlanner(self.store)
            ending.check_restart_changes_nothing(self.scheduler.state, self._second.scheduler.state)
        return effects

    def _step(self, events: list[Event], *, is_checked: bool) -> Effects:
        """Have the scheduler take its step, and the one beside it that was started again from the rows."""
        state, second, self._second = self.scheduler.state, self._second, None
        has_gangs = bool(state.own(GangMemory).plans or state.index.parallel)
        effects = self.scheduler.step(events, self.now)
        check_promises(self.store.plans, effects)
        ending.check_wakes(effects, self.store.sleepers, state)
        if second is not None and has_gangs:
            second.check(events, self.now, effects, state.settings)
        for attempt in effects.attempts.values():
            if attempt.id not in self.store.attempts:
                check_started(self.scheduler.state, attempt)
        if is_checked:
            check(self.scheduler.state)
        return effects

    def _die(self) -> None:
        """Crash the master: frames that it sent are still under way, events that it had not committed are gone."""
        self.inbox, self.is_up = [], False
        for link in self.links.values():
            link.down.append(CLOSED)
        self.links.clear()

    def _release(self, events: Sequence[Event], effects: Effects) -> None:
        for event, reply in zip(events, effects.replies, strict=True):
            if isinstance(reply, Submitted):
                self.acknowledged.add(reply.job)
            if isinstance(event, JobSubmitted) and event.idempotency_key is not None:
                self.answers[event.idempotency_key] = reply
            if isinstance(event, WorkerJoined) and event.session in self.links:
                welcome = Welcome(self.settings.report_every_s, self.settings.lease_s, peers=self._terms())
                link = self.links[event.session]
                link.down.append(link.master.send(welcome))
        for _, number in effects.closes:
            if number in self.links:
                self.links.pop(number).down.append(CLOSED)
        for name, assign in effects.assigns.items():
            open_link = self.links.get(self.scheduler.state.workers[name].session or 0)
            if open_link is not None:
                open_link.down.append(open_link.master.send(filled_in(assign)))

    # --- the network ----------------------------------------------------------------------------------------

    def connect(self, name: str) -> None:
        """Connect a machine. A link that is open already is superseded by the new one."""
        self.sessions += 1
        link = self.machines[name].connect(self.sessions)
        if self.is_up:
            self.links[link.number] = link
        else:
            link.down.append(CLOSED)

    def deliver_up(self, name: str, *, twice: bool = False, lost: bool = False) -> None:
        link = self.machines[name].link
        if link is not None:
            self.arrive_up(link, twice=twice, lost=lost)

    def arrive_up(self, link: Link, *, twice: bool = False, lost: bool = False) -> None:
        """Deliver the oldest frame under way to the master, also on a link that its worker has left."""
        if not link.up:
            return
        frame = link.up.popleft()
        for _ in range(0 if lost else 1 + twice):
            self._master_receives(link, frame)

    def deliver_down(self, name: str, *, twice: bool = False, lost: bool = False) -> None:
        machine = self.machines[name]
        if machine.link is None or not machine.link.down:
            return
        frame = machine.link.down.popleft()
        for _ in range(0 if lost else 1 + twice):
            if machine.link is not None:
                begun = len(machine.began)
                machine.confirmed = []
                self._check_on_disk(machine.receive(frame))
                self._checkpoints.check_acknowledged(machine.confirmed, self.store)
                ending.check_begun(machine.began[begun:], self.store, self.starts_named)

    def strays(self, name: str) -> list[Link]:
        """Return links that the worker has left but that still have frames under way to the master."""
        return [link for link in self.links.values() if link.name == name and link.up and not self._is_current(link)]

    def cut(self, name: str, *, noticed: bool) -> None:
        """Break the connection, with all frames under way; if not ``noticed``, only the lease tells the master."""
        link = self.machines[name].link
        if link is not None:
            self._master_loses(link) if noticed else link.up.clear()
        self.machines[name].link = None

    def _terms(self) -> PeerTerms | None:
        return PeerTerms("0" * 64, self.now, 0) if self.settings.peers else None

    def _is_current(self, link: Link) -> bool:
        return self.machines[link.name].link is link

    def _master_receives(self, link: Link, frame: bytes) -> None:
        if link.number not in self.links:
            return
        if frame == CLOSED:
            self._master_loses(link)
            return
        try:
            message = link.master.receive(frame)
        except ProtocolError:
            self._master_loses(link)
            link.down.append(CLOSED)
            return
        if isinstance(message, Hello):
            assert link.master.refusal() is None
            self.inbox.append(WorkerJoined(link.name, link.number, message.boot, message.facts))
        elif isinstance(message, Report):
            self._master_hears(link, WorkerReported(link.name, link.number, message))

    def _master_hears(self, link: Link, event: WorkerReported) -> None:
        """Answer a Report without news at once, unless one before it on its link waits for a step."""
        waits = any(isinstance(one, WorkerReported) and one.session == link.number for one in self.inbox)
        if self.keeps_back and not waits and link.master.may_answer and self.kept_back.keep(event, self.now):
            link.down.append(link.master.send(Assign(ANSWER, event.report.seq)))
        else:
            self.inbox.append(event)

    def _master_loses(self, link: Link) -> None:
        if self.links.pop(link.number, None) is not None:
            self.inbox.append(WorkerLeft(link.name, link.number))

    def _check_on_disk(self, forgotten: tuple[AttemptId, ...]) -> None:
        """Check that the master has every result that a worker deletes from its spool."""
        for attempt in forgotten:
            row = self.store.attempts[attempt]
            assert row.state not in LIVE, f"the result of {attempt} was acknowledged, but it is {row.state}"

    # --- users, operators and time --------------------------------------------------------------------------

    def submit(self, spec: JobSpec, key: str | None = None, owner: str = "user") -> None:
        self.inbox.append(JobSubmitted(owner, spec, key, ended=self._ended(spec.after)))

    def repeat_submission(self, job: Job) -> None:
        """Answer a repeated submission, which the master had accepted but not yet answered."""
        self.acknowledged.add(job.id)
        self.answers[job.idempotency_key or ""] = Submitted(job.id)

    def steer(self, verb: str, job_id: int) -> None:
        if verb == "retry":
            job = self.store.jobs[job_id]
            if job.state in ("failed", "cancelled") and not self._is_spoken_of(job_id):
                material = self.store.retry_material(job_id)
                if job.spec.checkpoint:
                    kept = [one for one in self.store.checkpoints.values() if one.job == job_id]
                    self.inbox.append(CheckpointsRecalled(job_id, tuple(copy(one) for one in kept)))
                self.inbox.append(JobRetried(*material, ended=self._ended(job.spec.after)))
            return
        self.inbox.append({"cancel": JobCancelled, "pause": JobPaused, "resume": JobResumed}[verb](job_id))

    def _ended(self, jobs: Iterable[int]) -> dict[int, JobState]:
        """Return the ended jobs without a retry under way: retries and readers of ended jobs take turns."""
        retried = {event.job.id for event in self.inbox if isinstance(event, JobRetried)}
        return {
            job: self.store.jobs[job].state for job in jobs if self.store.jobs[job].is_over and job not in retried
        }

    def _is_spoken_of(self, job_id: int) -> bool:
        """True if a retry of the job is under way, or an event that has read how it ended."""
        chained = [event for event in self.inbox if isinstance(event, JobSubmitted | JobRetried)]
        return any(job_id in event.ended or event.job.id == job_id if isinstance(event, JobRetried)
                   else job_id in event.ended for event in chained)  # fmt: skip

    def drain(self, name: str, *, draining: bool) -> None:
        self.inbox.append(WorkerDrained(name) if draining else WorkerUndrained(name))

    def forget(self, name: str) -> None:
        self.inbox.append(WorkerForgotten(name))

    def planner_answers(self) -> None:
        """Have the plan made that was asked for last, however much has changed since."""
        if self.asked is not None:
            asked, self.asked = self.asked, None
            plan = FILLING.plan(asked.request())
            self.inbox.append(TransfersPlanned(asked.number, asked.answer(plan), plan.objective))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.wake_at is not None and self.wake_at <= self.now:
            self.master_steps()

    @property
    def wake_at(self) -> float | None:
        """Time of the next step that is due without an event, or None."""
        times = (self.scheduler.wake_at, self.kept_back.wake_at)
        return min((at for at in times if at is not None), default=None)

    # --- the end --------------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """True if no job, process or unacknowledged result is left."""
        if not self.is_up or self.scheduler.state.jobs:
            return False
        return all(machine.core.is_idle and not machine.processes for machine in self.machines.values())

    def check_the_end(self) -> None:
        ending.check_rows(self.store, self.acknowledged)
        ending.check_machines(self.machines.values())
        ending.check_replay(self.store)
