"""The whole grid in virtual time: the real scheduler, both ends of the real link, and the real worker cores; a
network that cuts, drops and duplicates, workers that reboot, and a master that crashes at any point of its way
from event to frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from master.scheduling.effects import Reply, Submitted
from master.scheduling.events import (
    Batch,
    Event,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerDrained,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkerUndrained,
)
from master.scheduling.invariants import check
from master.scheduling.model import LIVE
from master.scheduling.scheduler import Scheduler
from shared.errors import ProtocolError
from shared.model import AttemptId, AttemptState, Facts, Held, Load, Outcome, Result
from shared.protocol.messages import Assign, Hello, Welcome
from shared.protocol.session import MasterSession, WorkerSession
from shared.spec import JobSpec
from tests.properties.memory_store import MemoryStore
from worker.core import Core


@dataclass
class Link:
    """One connection: frames under way in both directions."""

    number: int
    master: MasterSession
    worker: WorkerSession
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


class Machine:
    """One worker's computer: an agent's core, its spool on disk, and the processes that it runs."""

    def __init__(self, name: str, facts: Facts) -> None:
        self.name, self.facts, self.boots = name, facts, 0
        self.spool: dict[AttemptId, Result] = {}
        self.processes: dict[AttemptId, None] = {}
        self.link: Link | None = None
        self.core = Core()

    def boot(self) -> None:
        self.boots += 1
        self.processes.clear()
        self.link = None
        self.core = Core(self.spool.values())

    def connect(self, number: int) -> None:
        session = WorkerSession(self.name, f"boot-{self.boots}", self.facts)
        self.link = Link(number, MasterSession(), session)
        self.core.connected()
        self.link.up.append(session.hello())

    def report(self) -> None:
        if self.link is None or self.link.worker.welcome is None:
            return
        holding, results = self.core.to_report()
        seq, frame = self.link.worker.report([Held(a) for a in holding], results, Load(self.facts.slots))
        self.core.reported(seq, results)
        self.link.up.append(frame)

    def take(self, frame: bytes) -> tuple[AttemptId, ...]:
        """A frame has arrived; the attempts whose results the master says it has."""
        assert self.link is not None
        try:
            message = self.link.worker.receive(frame)
        except ProtocolError:
            self.link = None
            return ()
        if isinstance(message, Welcome):
            self.report()
        if not isinstance(message, Assign):
            return ()
        todo = self.core.assigned(message)
        for run in todo.start:
            assert run.attempt not in self.processes, f"{run.attempt} was started twice on {self.name}"
            self.processes[run.attempt] = None
        for attempt in todo.cancel:
            if attempt in self.processes:
                self.end(attempt, Outcome.CANCELLED)
        for attempt in todo.forget:
            del self.spool[attempt]
        return todo.forget

    def end(self, attempt: AttemptId, outcome: Outcome) -> None:
        del self.processes[attempt]
        self.spool[attempt] = Result(attempt, outcome, 0 if outcome is Outcome.SUCCEEDED else 1)
        self.core.ended(self.spool[attempt])


class World:
    def __init__(self, settings: SchedulerSettings, machines: list[Machine]) -> None:
        self.settings = settings
        self.machines = {machine.name: machine for machine in machines}
        self.now, self.sessions = 1000.0, 0
        self.store = MemoryStore()
        self.acknowledged: set[int] = set()  # jobs whose submission was answered
        self.inbox: list[Event] = []
        for machine in machines:
            machine.boot()
        self.start_master()

    # --- the master -----------------------------------------------------------------------------------------

    def start_master(self) -> None:
        self.scheduler = Scheduler(self.store.snapshot())
        self.inbox = [MasterStarted(self.settings)]
        for machine in self.machines.values():
            machine.link = None
        self.master_steps()

    def master_steps(self, crash: str = "") -> list[Reply]:
        """One turn of the engine; it may crash before its step, before its commit, or before it speaks."""
        events, self.inbox = self.inbox, []
        if crash == "before step":
            self.start_master()
            return []
        effects = self.scheduler.step(events, self.now)
        check(self.scheduler.state)
        if crash == "before commit":
            self.start_master()
            return []
        self.store.commit(Batch(self.now, events), effects)
        if crash == "before release":
            self.start_master()
            return []
        for event, reply in zip(events, effects.replies, strict=True):
            self._release(event, reply)
        for name, number in effects.closes:
            link = self.machines[name].link
            if link is not None and link.number == number:
                self.machines[name].link = None
        for name, assign in effects.assigns.items():
            link = self.machines[name].link
            if link is not None and link.number == self.scheduler.state.workers[name].session:
                link.down.append(link.master.send(assign))
        self.check_restart_changes_nothing()
        return effects.replies

    def _release(self, event: Event, reply: Reply) -> None:
        if isinstance(reply, Submitted):
            self.acknowledged.add(reply.job)
        if isinstance(event, WorkerJoined):
            link = self.machines[event.worker].link
            if link is not None and link.number == event.session:
                link.down.append(link.master.send(Welcome(10.0, self.settings.lease_s)))

    def check_restart_changes_nothing(self) -> None:
        """The rows hold all that the scheduler knows."""
        now, again = self.scheduler.state, Scheduler(self.store.snapshot()).state
        assert now.grid == again.grid
        for part in ("jobs", "tasks", "attempts", "workers", "fresh"):
            assert_same(part, getattr(now, part), getattr(again, part))
        assert now.index.ready == again.index.ready
        assert now.index.witness.keys() == again.index.witness.keys()
        assert not self.store.passings, f"passings: {self.store.passings}"

    # --- the network ----------------------------------------------------------------------------------------

    def connect(self, name: str) -> None:
        """Also where a link is open already: the newer one supersedes it."""
        self.sessions += 1
        self.machines[name].connect(self.sessions)

    def deliver_up(self, name: str, *, twice: bool = False, lost: bool = False) -> None:
        link = self.machines[name].link
        if link is None or not link.up:
            return
        frame = link.up.popleft()
        for _ in range(0 if lost else 1 + twice):
            self._master_receives(name, link, frame)

    def deliver_down(self, name: str, *, twice: bool = False, lost: bool = False) -> None:
        machine = self.machines[name]
        if machine.link is None or not machine.link.down:
            return
        frame = machine.link.down.popleft()
        for _ in range(0 if lost else 1 + twice):
            if machine.link is not None:
                self._check_on_disk(machine.take(frame))

    def cut(self, name: str, *, noticed: bool) -> None:
        """The connection breaks, and with it all frames under way; the master may notice only by the lease."""
        link = self.machines[name].link
        if link is not None and noticed:
            self.inbox.append(WorkerLeft(name, link.number))
        self.machines[name].link = None

    def _master_receives(self, name: str, link: Link, frame: bytes) -> None:
        try:
            message = link.master.receive(frame)
        except ProtocolError:
            self.cut(name, noticed=True)
            return
        if isinstance(message, Hello):
            assert link.master.refusal() is None
            self.inbox.append(WorkerJoined(name, link.number, message.boot, message.facts))
        elif message is not None:
            self.inbox.append(WorkerReported(name, link.number, message))

    def _check_on_disk(self, forgotten: tuple[AttemptId, ...]) -> None:
        """What a worker deletes from its spool, the master has."""
        for attempt in forgotten:
            row = self.store.attempts[attempt]
            assert row.state not in LIVE, f"the result of {attempt} was acknowledged, but it is {row.state}"

    # --- users, operators and time --------------------------------------------------------------------------

    def submit(self, spec: JobSpec) -> None:
        self.inbox.append(JobSubmitted("user", spec))

    def steer(self, verb: str, job_id: int) -> None:
        if verb == "retry":
            job = self.store.jobs[job_id]
            if job.state in ("failed", "cancelled") and not any(
                isinstance(event, JobRetried) and event.job.id == job_id for event in self.inbox
            ):
                self.inbox.append(JobRetried(*self.store.retry_material(job_id)))
            return
        self.inbox.append({"cancel": JobCancelled, "pause": JobPaused, "resume": JobResumed}[verb](job_id))

    def drain(self, name: str, *, draining: bool) -> None:
        self.inbox.append(WorkerDrained(name) if draining else WorkerUndrained(name))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.scheduler.wake_at is not None and self.scheduler.wake_at <= self.now:
            self.master_steps()

    # --- the end --------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Heal everything, let every process end well, and see that nothing is left.

        Links that are half open because a frame was lost are reopened, as an agent does that gets no answer.
        """
        for name in self.machines:
            self.drain(name, draining=False)
            self.cut(name, noticed=False)
        for job in list(self.store.jobs.values()):
            if job.is_live:
                self.steer("resume", job.id)
        self.master_steps()
        for _ in range(40 + 12 * self._work_left()):
            if self._is_over():
                break
            self._one_quiet_round()
        self._check_the_end()

    def _work_left(self) -> int:
        return sum(job.task_count * job.max_attempts for job in self.store.jobs.values() if job.is_live)

    def _one_quiet_round(self) -> None:
        self.now += 1
        for name, machine in self.machines.items():
            if machine.link is None:
                self.connect(name)
            for attempt in list(machine.processes)[:1]:
                machine.end(attempt, Outcome.SUCCEEDED)
            machine.report()
            while machine.link is not None and machine.link.up:
                self.deliver_up(name)
        self.master_steps()
        for name, machine in self.machines.items():
            while machine.link is not None and machine.link.down:
                self.deliver_down(name)

    def _is_over(self) -> bool:
        alive = any(machine.processes or not machine.core.is_idle for machine in self.machines.values())
        return not (alive or self.scheduler.state.jobs)

    def _check_the_end(self) -> None:
        for job_id in self.acknowledged:
            job = self.store.jobs[job_id]
            assert not job.is_live, f"job {job_id} is still {job.state}: {job}"
            assert job.departure is not None
        for task in self.store.tasks.values():
            assert not task.is_open, f"task {task.id} is still {task.state}"
            accepted = [a for a in self.store.attempts.values() if a.task_id == task.id and a.accepted]
            assert len(accepted) == (task.state == "succeeded"), f"task {task.id} is {task.state}: {accepted}"
        for machine in self.machines.values():
            assert not machine.processes, f"{machine.name} still runs {list(machine.processes)}"
            assert not machine.spool, f"{machine.name} still keeps {list(machine.spool)}"
        live = [a.id for a in self.store.attempts.values() if a.state in (*LIVE, AttemptState.CANCELLING)]
        assert not live, f"attempts still alive: {live}"
        self._check_replay()

    def _check_replay(self) -> None:
        again = self.store.replayed()
        assert again.grid == self.store.grid
        for part in ("jobs", "tasks", "attempts", "workers", "exemptions"):
            assert_same(part, getattr(self.store, part), getattr(again, part))


def assert_same(what: str, now: Mapping[Any, object], again: Mapping[Any, object]) -> None:
    for key in {**now, **again}:
        assert now.get(key) == again.get(key), f"{what} {key}: now {now.get(key)}, again {again.get(key)}"
