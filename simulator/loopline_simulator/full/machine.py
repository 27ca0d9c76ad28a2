"""The computer of a worker: its agent's machine, disk, processes, owner, and its end of a link."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from loopline_shared.errors import ProtocolError
from loopline_shared.model import AttemptId, Facts, Held, Load, Outcome, Output, Result
from loopline_shared.protocol.checkpoints import TakenCheckpoint
from loopline_shared.protocol.link_session import MasterSession, WorkerSession
from loopline_shared.protocol.power import GoodBye
from loopline_shared.protocol.worker_link import Assign, Run, Welcome
from loopline_simulator.full.machine_checkpoints import MachineCheckpoints
from loopline_simulator.full.machine_files import MachineFiles
from loopline_worker.core import instructions as do
from loopline_worker.core import machine as worker
from loopline_worker.core.events import (
    Assigned,
    AttemptEnded,
    Connected,
    Event,
    Followed,
    FreezeCompleted,
    OwnerObserved,
    Reported,
    Restored,
    Retracted,
    Returned,
    Stopping,
)
from loopline_worker.core.gang_members import GangMembers, PreparedMember, StartMember
from loopline_worker.core.instructions import Entry, Instruction
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.core.owner_policy import OwnerPreferences, Policy, Signs

CLOSED = b""
"""In place of a frame: its sender has closed the link."""


@dataclass(slots=True, eq=False)
class Link:
    """A connection: frames under way in both directions, each in order of sending."""

    number: int
    name: str  # of the machine
    master: MasterSession
    worker: WorkerSession
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


WATTS = 10.0
"""Power above idle of a task, where energy is declared."""
_PORT = 4000
_OWNER = OwnerPreferences(Policy.WHEN_IDLE, on_battery=True, yield_to_load=False)


class Disk:
    """The journal on disk, which the next agent reads."""

    def __init__(self) -> None:
        self.waiting: dict[AttemptId, Run] = {}
        self.begun: dict[AttemptId, None] = {}
        self.results: dict[AttemptId, Result] = {}

    def write(self, entry: Entry) -> None:
        """Take in an entry, line by line as a journal does."""
        for result in entry.results:
            self.waiting.pop(result.attempt, None)
            self.begun.pop(result.attempt, None)
            self.results[result.attempt] = result
        for attempt in entry.over:
            for kept in (self.waiting, self.begun, self.results):
                kept.pop(attempt, None)
        for assign, _ in entry.came:
            fresh = [run for run in assign.run if run.attempt not in assign.cancel and not self._has(run.attempt)]
            self.waiting |= {run.attempt: run for run in fresh}
        for attempt in entry.began:
            self.waiting.pop(attempt, None)
            self.begun[attempt] = None

    def _has(self, attempt: AttemptId) -> bool:
        return attempt in self.waiting or attempt in self.begun or attempt in self.results


class Machine:
    """The computer: it carries out at once what the agent's machine says. Others decide when processes end."""

    def __init__(
        self,
        name: str,
        facts: Facts,
        clock: Callable[[], float] = lambda: 0.0,
        *,
        grace_s: float = 300.0,
        room: int = 0,
    ) -> None:
        """``grace_s``: the longest time that an attempt stays frozen; ``room``: how many may be prefetched."""
        self.name, self.facts, self.boots = name, facts, 0
        self.disk = Disk()
        self.processes: dict[AttemptId, float] = {}  # since when
        self.link: Link | None = None
        self._room = room
        self._grace_s = grace_s
        self._prefetched: list[Run] = []  # at its supervisors
        self._members: dict[AttemptId, Run] = {}  # of gangs, prepared: they wait for the word to start
        self.began: list[AttemptId] = []  # members of gangs that ever began here, in this order
        self.files = MachineFiles()
        self.checkpoints = MachineCheckpoints(name)
        self.wakes: list[str] = []  # computers that it has been ordered to wake
        self.confirmed: list[TakenCheckpoint] = []  # acknowledged by the last Assign
        self._slots: dict[AttemptId, int] = {}  # of processes
        self._frozen: set[AttemptId] = set()
        self._events: list[Event] = []
        self._in_use = False
        self._clock = clock
        self.core = self._new_core()

    @property
    def is_welcome(self) -> bool:
        """True if the link is open and the master has sent its Welcome."""
        return self.link is not None and self.link.worker.welcome is not None

    @property
    def in_use(self) -> bool:
        """True if the owner is using the computer."""
        return self._in_use

    @in_use.setter
    def in_use(self, value: bool) -> None:
        self._in_use = value
        self.look()

    def look(self, paused: str = "") -> None:
        """Tell the agent's machine if the owner is there; ``paused``: until when the owner wants no tasks."""
        slots = float(self.facts.slots)
        signs = Signs(slots, slots, idle_s=0.0 if self._in_use else math.inf, paused=paused)
        self._happens(OwnerObserved(signs, self._clock()))

    def boot(self, *, forgets: bool = False, agent_died: bool = False) -> None:
        """Restart the agent: processes are gone, and the disk is kept.

        If it ``forgets``, only results are kept. ``agent_died``: the computer itself was not started again.
        """
        self.boots += 1
        self.lose_power()
        self.files.boot(loses_cache=forgets)
        self.checkpoints.boot()
        self.link = None
        if forgets:
            self.disk.waiting.clear()
            self.disk.begun.clear()
        self.core = self._new_core()
        left = self.disk
        self._happens(Restored([*left.results.values()], [*left.begun], [*left.waiting.values()], agent_died))
        self.look()

    def lose_power(self) -> None:
        """End all processes."""
        self.processes.clear()
        self._slots.clear()
        self._prefetched.clear()
        self._members.clear()
        self._frozen.clear()
        self._events.clear()

    def resume(self, slept_s: float) -> None:
        """Continue after a suspend: the processes were not running."""
        for attempt in self.processes:
            self.processes[attempt] += slept_s

    def stop(self) -> None:
        """Return all attempts to the queue, and begin no more."""
        self._happens(Stopping())

    def connect(self, number: int) -> Link:
        """Open a link, and leave the one before it."""
        session = WorkerSession(self.name, f"boot-{self.boots}", self.facts)
        self.link = Link(number, self.name, MasterSession(), session)
        self.files.begin()
        self.checkpoints.connect()
        self._happens(Connected())
        self.link.up.append(session.hello())
        return self.link

    def report(self, good_bye: GoodBye | None = None) -> None:
        """Send a Report, if the master has said welcome."""
        if self.link is None or self.link.worker.welcome is None:
            return
        inventory = self.core.inventory()
        held = [Held(attempt, self._age(attempt), frozen=attempt in self._frozen) for attempt in inventory.holding]
        load = Load(self.core.slots_offered, float(self.facts.slots), in_use=self.core.is_in_use)
        draft = DraftReport(held, load)
        self.core.report(draft)
        files = self.files.report() if self.link.worker.welcome.peers else None
        delivering, taken = inventory.delivering, self.checkpoints.report(self.link.worker.sent + 1)
        seq, frame = self.link.worker.report(
            held, inventory.results, load, inventory.waiting, draft.members, files,
            delivering=delivering, checkpoints=taken, good_bye=good_bye,
        )  # fmt: skip
        self._happens(Reported(seq, inventory.results))
        self.link.up.append(frame)

    def receive(self, frame: bytes) -> tuple[AttemptId, ...]:
        """Take in a frame; return the attempts whose results the master has acknowledged."""
        assert self.link is not None
        if frame == CLOSED:
            self.link = None
            return ()
        try:
            message = self.link.worker.receive(frame)
        except ProtocolError:
            self.hang_up()
            return ()
        if isinstance(message, Welcome):
            self.report()
        if not isinstance(message, Assign):
            return ()
        self.files.obey(message)
        self.wakes += [target.worker for target in message.power.wake] if message.power else []
        self.confirmed = self.checkpoints.acknowledged(message.seen)
        return self._happens(Assigned(message, frame))

    def stands_still(self, attempt: AttemptId) -> bool:
        """True if a process is frozen."""
        return attempt in self._frozen

    def hang_up(self) -> None:
        """Close the link; frames that were already sent still arrive."""
        if self.link is not None:
            self.link.up.append(CLOSED)
            self.link = None

    def end(self, attempt: AttemptId, outcome: Outcome, *, lies: bool = False) -> None:
        """End an attempt; a prefetched one begins in its place. ``lies``: it prints other text than an honest one."""
        result = self._leave(attempt, outcome, printed=self.name.encode() if lies else b"the truth")
        if self._prefetched and attempt not in self._frozen:
            run = self._prefetched.pop(0)
            self._run(run)
            self._events.append(Followed(attempt, run.attempt))
        self._frozen.discard(attempt)
        self._happens(AttemptEnded(result))

    def _happens(self, event: Event) -> tuple[AttemptId, ...]:
        """Take steps until nothing more has happened: write, then obey. Return what may be forgotten."""
        self._events.append(event)
        forgotten: list[AttemptId] = []
        while self._events:
            events, self._events = self._events, []
            steps = self.core.step(events, self._clock(), self._room - len(self._prefetched))
            self.disk.write(steps.journal)
            forgotten += steps.journal.over
            for instruction in steps.todo:
                self._obey(instruction)
                self._obey_gang(instruction)
        slots = sum(self._slots.values()) + sum(run.slots for run in self._members.values())
        assert slots <= self.facts.slots, "more than fits"
        return tuple(forgotten)

    def _obey(self, instruction: Instruction) -> None:
        match instruction:
            case do.Start(run):
                self._run(run)
            case do.Prefetch(run):
                self._prefetched.append(run)
            case do.Retract():
                self._events += [Returned([run.attempt for run in self._prefetched]), Retracted()]
                self._prefetched.clear()
            case do.Freeze(attempt):
                self._frozen.add(attempt)
                self._events.append(FreezeCompleted(attempt))
            case do.Thaw(attempt):
                self._frozen.discard(attempt)
            case do.Kill(attempt, outcome, reason) if attempt in self.processes:
                self._frozen.discard(attempt)
                self._events.append(AttemptEnded(self._leave(attempt, outcome, reason)))
            case do.Deliver():
                raise AssertionError("the disk takes everything here, and no task leaves files")

    def _obey_gang(self, instruction: Instruction) -> None:
        """Do what a gang's member asks for that has not begun."""
        match instruction:
            case do.Prepare(run):
                self._members[run.attempt] = run
                self._events.append(PreparedMember(run.attempt, _PORT))
            case StartMember(run):
                self._run(self._members.pop(run.attempt))
                self.began.append(run.attempt)
            case do.Kill(attempt, outcome, reason) if self._members.pop(attempt, None):
                self._events.append(AttemptEnded(Result(attempt, outcome, reason=reason)))

    def _run(self, run: Run) -> None:
        assert run.attempt not in self.processes, f"{run.attempt} was started twice on {self.name}"
        self.processes[run.attempt] = self._clock()
        self._slots[run.attempt] = run.slots
        self.checkpoints.begin(run)

    def _leave(self, attempt: AttemptId, outcome: Outcome, reason: str = "", printed: bytes = b"the truth") -> Result:
        age, code = self._age(attempt), 0 if outcome is Outcome.SUCCEEDED else 1
        del self.processes[attempt], self._slots[attempt]
        output = Output(len(printed), data=printed)
        joules = dict.fromkeys(self.facts.energy, age * WATTS) if age else None
        return Result(attempt, outcome, code, reason, wall_s=age, cpu_s=age, stdout=output, joules=joules)

    def _new_core(self) -> worker.Machine:
        return worker.Machine(self.facts.slots, _OWNER, self._grace_s, wings=(GangMembers,))

    def _age(self, attempt: AttemptId) -> float:
        now = self._clock()
        return now - self.processes.get(attempt, now)
