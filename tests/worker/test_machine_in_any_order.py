"""The worker's machine with a model of its computer: its invariants hold for any events in any order."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loopline_shared.model import AttemptId, Outcome, Output, Result
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_simulator.full.machine import Disk
from loopline_worker.core import instructions as do
from loopline_worker.core.events import (
    Assigned,
    AttemptEnded,
    Connected,
    Delivered,
    DiskObserved,
    Event,
    Followed,
    FreezeCompleted,
    LinkSilent,
    OwnerObserved,
    Reported,
    Restored,
    Retracted,
    Returned,
    WriteFailed,
)
from loopline_worker.core.machine import Machine
from loopline_worker.core.owner_policy import OwnerPreferences, Policy, Signs
from loopline_worker.core.transitions import State
from tests.campaign import tried

TERMS = OwnerPreferences(Policy.SPARE, reserve_cores=0.0, reserve_memory_bytes=100)
ids = st.builds(AttemptId, st.just(1), st.integers(1, 60), st.just(1))
some = st.lists(ids, max_size=6, unique=True)
which = st.integers(0, 9)
looks = st.sampled_from(["", "", "", "pause", "short of memory"])


def run_of(attempt: AttemptId) -> Run:
    """Every eighth attempt needs two slots."""
    return Run(attempt, ("true",), {}, {}, slots=1 + (attempt.task % 8 == 7))


class Computer(RuleBasedStateMachine):
    """Processes, supervisors, a disk and a link that execute instructions and suffer random events."""

    @initialize(slots=st.integers(1, 3), grace_s=st.sampled_from([0.0, 10.0]), room=st.sampled_from([0, 1, 4]))
    def build(self, slots: int, grace_s: float, room: int) -> None:
        self.room = room
        self.slots, self.grace_s, self.now = slots, grace_s, 0.0
        self.disk = Disk()
        self.ran = set[AttemptId]()  # all attempts ever started
        self.reported = dict[AttemptId, int]()  # number of the Report of this session with its result
        self.seq = 0
        self.boot()

    def boot(self) -> None:
        self.machine = Machine(self.slots, TERMS, self.grace_s)
        self.processes = dict[AttemptId, bool]()  # whether it will be killed
        self.supervised = list[Run]()  # prefetched, not started
        self.unheard = list[Event]()  # of supervisors
        self.delivering = dict[AttemptId, Result]()
        self.events = list[Event]()
        self.doubted = set[AttemptId]()
        self.must_fail = False
        self.session()
        left = self.disk
        self.ran -= left.waiting.keys()  # started while the disk was full: it may run again
        self.happens(Restored([*left.results.values()], [*left.begun], [*left.waiting.values()]))
        self.doubted = set(self.disk.waiting)

    def session(self) -> None:
        self.reported.clear()
        self.seq = 0

    def happens(self, event: Event) -> None:
        self.events.append(event)
        while self.events:
            events, self.events = self.events, []
            steps = self.machine.step(events, self.now, self.room - len(self.supervised))
            self.commit(steps.journal)
            for instruction in steps.todo:
                self.obey(instruction)

    def commit(self, entry: do.Entry) -> None:
        for attempt in entry.over:
            assert attempt in self.reported, f"{attempt} is forgotten, and was never reported"
            del self.reported[attempt]
        if self.must_fail and (entry.results or entry.came or entry.began):
            self.must_fail = False
            self.disk.write(do.Entry(over=entry.over))
            self.events.insert(0, WriteFailed([result.attempt for result in entry.results], "no room"))
        else:
            self.disk.write(entry)

    def obey(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.Start(run):
                returned = [each.attempts for each in self.events if isinstance(each, Returned)]
                assert not self.supervised, "earlier runs that wait at supervisors"
                assert not any(returned), "earlier runs whose start is not reported yet"
                assert not self.machine.attempts.frozen, "no attempt starts beside a frozen one"
                self.begin(run)
            case do.Prefetch(run):
                self.supervised.append(run)
            case do.Retract():
                self.events += [Returned([run.attempt for run in self.supervised]), Retracted()]
                self.supervised.clear()
            case do.Kill(attempt):
                if attempt in self.processes:
                    self.processes[attempt] = True
            case do.Deliver(result):
                assert result.attempt not in self.delivering
                self.delivering[result.attempt] = result

    def begin(self, run: Run) -> None:
        assert run.attempt not in self.ran, f"{run.attempt} runs twice"
        assert run.attempt not in self.doubted, f"{run.attempt} begins, and the master may have given it elsewhere"
        self.ran.add(run.attempt)
        self.processes[run.attempt] = False
        assert sum(run_of(attempt).slots for attempt in self.processes) <= self.slots, "more run than there are slots"

    @rule(runs=some, which=st.lists(which, max_size=2), back=st.integers(0, 3))
    def assign(self, runs: list[AttemptId], which: list[int], back: int) -> None:
        """The master never assigns an attempt with a result, and answers a Report of this session or none."""
        seen = max(0, self.seq - back)
        kept = {each for each in self.machine.attempts._all if not 0 < self.reported.get(each, 0) <= seen}
        new = tuple(run_of(each) for each in runs if each not in self.ran or each in kept)
        self.doubted = set() if seen else self.doubted
        known = [*self.machine.attempts._all, AttemptId(9, 9, 9)]
        cancel = tuple(known[-1 - each % len(known)] for each in which)
        self.happens(Assigned(Assign(1, seen, new, cancel)))

    @precondition(lambda self: self.processes)
    @rule(which=which, long=st.booleans(), leaves=st.booleans(), fails=st.booleans())
    def a_process_ends(self, which: int, long: bool, leaves: bool, fails: bool) -> None:
        attempt = list(self.processes)[which % len(self.processes)]
        self.hear()
        outcome = Outcome.CANCELLED if self.processes.pop(attempt) else Outcome.SUCCEEDED
        self.must_fail = fails
        output = Output(9999, sha256="a" * 64) if long else Output()
        self.happens(AttemptEnded(Result(attempt, outcome, 0, stdout=output), leaves_folder=leaves))

    @precondition(lambda self: self.supervised and self.processes)
    @rule(which=which)
    def a_supervisor_goes_on(self, which: int) -> None:
        """It starts the next attempt in the place of the ended one; the agent will receive both events."""
        before, run = list(self.processes)[which % len(self.processes)], self.supervised[0]
        if run_of(before).slots == 1 and self.machine.attempts.get(before).state is not State.FROZEN:  # type: ignore[union-attr]
            del self.processes[before]
            self.begin(self.supervised.pop(0))
            self.unheard += [Followed(before, run.attempt), AttemptEnded(Result(before, Outcome.SUCCEEDED, 0))]

    @rule()
    def hear(self) -> None:
        """Deliver the supervisors' events to the machine."""
        unheard, self.unheard = self.unheard, []
        for event in unheard:
            self.happens(event)

    @rule()
    def report(self) -> None:
        inventory = self.machine.inventory()
        told = [
            *inventory.holding,
            *inventory.delivering,
            *inventory.waiting,
            *(result.attempt for result in inventory.results),
        ]
        assert sorted([*told, *self.machine.attempts.sent]) == sorted(self.machine.attempts._all), (
            "each result is reported once"
        )
        taken = sum(self.machine.attempts.get(attempt).slots for attempt in inventory.holding)  # type: ignore[union-attr]
        assert taken == self.machine.attempts.taken, "exactly the held attempts occupy the slots"
        for result in inventory.results:
            ran = result.attempt in self.ran and result.outcome is not Outcome.GIVEN_BACK
            assert not ran or self.disk.results.get(result.attempt) == result or not self.happened_here(result)
        self.seq += 1
        self.reported |= {result.attempt: self.seq for result in inventory.results}
        self.happens(Reported(self.seq, inventory.results))

    def happened_here(self, result: Result) -> bool:
        """The result of an attempt dropped before its start need not be on disk."""
        return result.exit_code is not None

    @rule(is_new=st.booleans())
    def the_link_breaks(self, is_new: bool) -> None:
        waiting = set(self.machine.inventory().waiting) - {run.attempt for run in self.supervised}
        claimed = {event.after for event in self.unheard if isinstance(event, Followed)}
        here = {run.attempt for run in self.supervised}
        if is_new:
            self.session()
        self.happens(Connected() if is_new else LinkSilent())
        self.doubted |= (waiting | here) - claimed

    @rule(cores=st.integers(0, 3), passed_s=st.sampled_from([0.0, 1.0, 20.0]), what=looks)
    def the_owner_is_looked_at(self, cores: int, passed_s: float, what: str) -> None:
        self.now += passed_s
        paused, memory = "for good" if what == "pause" else "", 0 if what == "short of memory" else 100
        self.happens(OwnerObserved(Signs(3, cores, math.inf, memory, paused=paused), self.now))

    @rule(obstacle=st.sampled_from(["", "", "full"]), shortage=st.sampled_from(["", "", "full"]))
    def the_disk_is_looked_at(self, obstacle: str, shortage: str) -> None:
        self.happens(DiskObserved(obstacle, shortage, is_writable=True))

    @precondition(lambda self: self.machine.freezing)
    @rule()
    def freezing_attempts_are_frozen(self) -> None:
        for attempt in list(self.machine.attempts.frozen):
            self.happens(FreezeCompleted(attempt))

    @precondition(lambda self: self.delivering)
    @rule()
    def a_result_is_delivered(self) -> None:
        attempt, result = next(iter(self.delivering.items()))
        del self.delivering[attempt]
        self.disk.write(do.Entry([result]))
        self.happens(Delivered(result))

    @rule()
    def the_agent_is_killed(self) -> None:
        """All running attempts are killed with it."""
        if self.disk.begun or self.disk.waiting:
            self.boot()

    @invariant()
    def each_attempt_is_in_one_state(self) -> None:
        if not hasattr(self, "machine"):
            return
        attempts: Any = self.machine.attempts
        places = [(each.id, state) for state, some in attempts._by_state.items() for each in some.values()]
        assert sorted(places) == sorted((each.id, each.state) for each in attempts._all.values())
        with_slots = [each.slots for each in attempts._all.values() if each.slots]
        assert (attempts.taken, attempts.with_slots) == (sum(with_slots), len(with_slots))
        assert attempts.taken <= self.slots
        assert all(each.slots for each in (*attempts.running.values(), *attempts.frozen.values()))
        assert attempts.doubted <= {*attempts.waiting, *attempts.prefetched}


TestComputer = Computer.TestCase
TestComputer.settings = settings(max_examples=tried(40, 4000), stateful_step_count=50, deadline=None)
