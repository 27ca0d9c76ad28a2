"""One worker's computer: an agent's core, its spool on disk, the processes that it runs, and its end of a link."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from loopline_shared.errors import ProtocolError
from loopline_shared.model import AttemptId, Facts, Held, Load, Outcome, Output, Result
from loopline_shared.protocol.messages import Assign, Run, Welcome
from loopline_shared.protocol.session import MasterSession, WorkerSession
from loopline_worker.core.core import Core

CLOSED = b""
"""In place of a frame: whoever sent the frames before it has closed the link."""


@dataclass(slots=True, eq=False)
class Link:
    """One connection: frames under way in both directions, each in the order in which they were sent."""

    number: int
    name: str  # of the machine
    master: MasterSession
    worker: WorkerSession
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


class Machine:
    """Does at once what it is told; when its processes end, and when it reports, others decide."""

    def __init__(self, name: str, facts: Facts, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.name, self.facts, self.boots = name, facts, 0
        self.spool: dict[AttemptId, Result] = {}
        self.sent: dict[
            AttemptId, tuple[Run, bool]
        ] = {}  # on disk: what has no result in the spool; whether it began
        self.processes: dict[AttemptId, float] = {}  # since when
        self.link: Link | None = None
        self.core = Core()
        self.offered = facts.slots
        self._in_use = False
        self._clock = clock

    @property
    def is_welcome(self) -> bool:
        """Its link is open, and the master has said so."""
        return self.link is not None and self.link.worker.welcome is not None

    @property
    def in_use(self) -> bool:
        """By its owner: everything stands still."""
        return self._in_use

    @in_use.setter
    def in_use(self, value: bool) -> None:
        self._in_use = value
        self._review()

    def boot(self, *, forgets: bool = False, agent_died: bool = False) -> None:
        """Whatever ran is gone; what is in the spool is not, unless the agent ``forgets`` what it had still to do.
        ``agent_died``: the computer itself was not started again.
        """
        self.boots += 1
        self.processes.clear()
        self.link = None
        sent = {} if forgets else {a: entry for a, entry in self.sent.items() if a not in self.spool}
        begun = [
            Result(a, Outcome.GIVEN_BACK, reason="restarted", agent_died=agent_died)
            for a, (_, has_begun) in sent.items()
            if has_begun
        ]
        self.sent = sent
        self.core = Core(
            [*self.spool.values(), *begun], (), [run for run, has_begun in sent.values() if not has_begun]
        )
        self.offered = self.facts.slots
        self._review()

    def stop(self) -> None:
        """Whatever is in hand is given back, and nothing more begins."""
        self.offered = 0
        self._review()
        for attempt in list(self.processes):
            self.end(attempt, Outcome.GIVEN_BACK)

    def connect(self, number: int) -> Link:
        session = WorkerSession(self.name, f"boot-{self.boots}", self.facts)
        self.link = Link(number, self.name, MasterSession(), session)
        self.core.connected()
        self.link.up.append(session.hello())
        return self.link

    def report(self) -> None:
        if self.link is None or self.link.worker.welcome is None:
            return
        holding, results = self.core.to_report()
        held = [Held(attempt, self._age(attempt), frozen=self.in_use) for attempt in holding]
        load = Load(0 if self.in_use else self.offered, in_use=self.in_use)
        seq, frame = self.link.worker.report(held, results, load, self.core.waiting)
        self.core.reported(seq, results)
        self.link.up.append(frame)

    def take(self, frame: bytes) -> tuple[AttemptId, ...]:
        """A frame has arrived; the attempts whose results the master says it has."""
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
        return self._carry_out(message) if isinstance(message, Assign) else ()

    def hang_up(self) -> None:
        """Close the link; what was sent before is still under way."""
        if self.link is not None:
            self.link.up.append(CLOSED)
            self.link = None

    def end(self, attempt: AttemptId, outcome: Outcome, *, lies: bool = False) -> None:
        """``lies``: what it prints is not what others would."""
        age, code = self._age(attempt), 0 if outcome is Outcome.SUCCEEDED else 1
        del self.processes[attempt]
        printed = self.name.encode() if lies else b"the truth"
        output = Output(len(printed), data=printed)
        self.spool[attempt] = Result(attempt, outcome, code, wall_s=age, cpu_s=age, stdout=output)
        self.sent.pop(attempt, None)
        self._begin(self.core.ended(self.spool[attempt]))

    def _carry_out(self, assign: Assign) -> tuple[AttemptId, ...]:
        todo = self.core.assigned(assign)
        self.sent |= {run.attempt: (run, False) for run in assign.run if self.core.is_waiting(run.attempt)}
        self._begin(todo.start)
        for attempt in todo.cancel:
            if attempt in self.processes:
                self.end(attempt, Outcome.CANCELLED)
        for attempt in todo.forget:
            self.spool.pop(attempt, None)
            self.sent.pop(attempt, None)
        self._review()
        return todo.forget

    def _begin(self, runs: Iterable[Run]) -> None:
        for run in runs:
            assert run.attempt not in self.processes, f"{run.attempt} was started twice on {self.name}"
            self.processes[run.attempt] = self._clock()
            self.sent[run.attempt] = run, True
        assert sum(self.sent[attempt][0].slots for attempt in self.processes) <= self.facts.slots, "more than fits"

    def _review(self) -> None:
        """Nothing begins beside what stands still, and nothing waits for it."""
        slots = 0 if self.in_use else self.offered
        self._begin(self.core.allow(slots))
        if not slots:
            self.core.give_back("somebody is there")

    def _age(self, attempt: AttemptId) -> float:
        now = self._clock()
        return now - self.processes.get(attempt, now)
