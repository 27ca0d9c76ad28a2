"""Promised starts on a grid where time passes second by second and workers end what exceeds its limit.

Each step is checked by the world: no passings, no promise moved back without a reason, no gang that lacks a member,
and the same plans by a scheduler that was started again from the rows. As long as no worker is lost, drained, claimed
or distrusted, no promise is broken at all, wherever the master is started again.
"""

from __future__ import annotations

from typing import Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.policies import REGISTRY
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptId, Order, Outcome
from loopline_shared.spec import JobSpec
from tests.campaign import CHECK_EVERY, tried
from tests.properties.test_world import NAMES, crashes, facts
from tests.properties.world import Machine, World

names = st.sampled_from(NAMES)
limits = st.sampled_from([None, 4, 10, 10, 30, 60, 60])


class PunctualWorld(World):
    """Frames arrive at once, and workers end at its limit whatever runs: only what ``disturb`` does comes amiss."""

    def __init__(self, chosen: SchedulerSettings, machines: list[Machine]) -> None:
        self.ran: dict[AttemptId, int] = {}  # seconds
        self.away: set[str] = set()
        self.is_disturbed = False
        super().__init__(chosen, machines, check_every=CHECK_EVERY)

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            for machine in self.machines.values():
                self._run_on(machine)
            self.talk()
            told = [one.reason for one in self.store.broken]
            assert self.is_disturbed or not told, f"nothing has come amiss, and yet: {told}"

    def talk(self, rounds: int = 3) -> None:
        """Have everybody say all there is to say, there and back: a gang is ready and has begun."""
        for _ in range(rounds):
            for name, machine in self.machines.items():
                if name not in self.away:
                    if machine.link is None:
                        self.connect(name)
                        self.deliver_up(name)
                    machine.report()
                while machine.link is not None and machine.link.up:
                    self.deliver_up(name)
            self.master_steps()
            for name, machine in self.machines.items():
                while machine.link is not None and machine.link.down:
                    self.deliver_down(name)

    def _run_on(self, machine: Machine) -> None:
        """Let a second pass on a machine; end attempts that are done or have reached their limit."""
        for attempt in [one for one in machine.processes if not machine.stands_still(one)]:
            self.ran[attempt] = ran = self.ran.get(attempt, 0) + 1
            spec = self.store.jobs[attempt.job].spec
            is_done = ran >= lasts_of(spec, attempt)
            if is_done or (spec.timeout_s is not None and ran >= spec.timeout_s):
                machine.end(attempt, Outcome.SUCCEEDED if is_done else Outcome.FAILED)


def lasts_of(spec: JobSpec, attempt: AttemptId) -> int:
    """How many seconds an attempt runs: its job's name says so, and tasks differ."""
    return max(1, int(spec.name) - attempt.task % 3)


class PromisesMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(sorted(REGISTRY)),
        order=st.sampled_from([Order.HOLD, Order.DELIVER, Order.NONE]),
        slots=st.lists(st.integers(1, 2), min_size=3, max_size=3),
        times=st.sampled_from(["thrifty-blend", "naive"]),
        ahead=st.sampled_from([0.0, 2.5]),
        single=st.sampled_from(["deliver", "hold"]),
        disturbed=st.booleans(),
    )
    def build(
        self,
        policy: str,
        order: Order,
        slots: list[int],
        times: str,
        ahead: float,
        single: Literal["deliver", "hold"],
        disturbed: bool,
    ) -> None:
        chosen = SchedulerSettings(
            policy, order, single_task_order=single, lease_s=20.0, max_jobs=16, prefetch_s=ahead, max_prefetch=4,
            quarantine_s=20.0, plan_times=times, max_replicas=None, gang_prepare_s=20.0, gang_grace_s=10.0,
        )  # fmt: skip
        machines = [Machine(name, facts(count, ()), room=0) for name, count in zip(NAMES, slots, strict=True)]
        self.world, self.may_disturb = PunctualWorld(chosen, machines), disturbed
        self.world.talk()

    @rule(nodes=st.integers(1, 3), limit=limits, lasts=st.integers(1, 40), count=st.integers(1, 3), crash=crashes)
    def submit(self, nodes: int, limit: int | None, lasts: int, count: int, crash: str) -> None:
        spec = JobSpec(
            name=str(lasts),
            command=["work"],
            nodes=nodes,
            size=float(lasts * nodes),
            timeout_s=limit,
            max_attempts=1,
            max_replicas="unlimited",
            parameters={"i": Range(range=[1, count])} if count > 1 else None,
        )
        self.world.submit(spec)
        self.world.master_steps(crash)
        self.world.talk()

    @rule(seconds=st.sampled_from([1, 2, 7, 30]))
    def time_passes(self, seconds: int) -> None:
        self.world.tick(seconds)

    @rule(crash=crashes)
    def the_master_is_started_again(self, crash: str) -> None:
        self.world.master_steps(crash or "before release")
        self.world.talk()

    @rule(verb=st.sampled_from(["cancel", "pause", "resume"]), which=st.integers(0, 5))
    def steer(self, verb: str, which: int) -> None:
        jobs = sorted(self.world.store.jobs)
        if jobs:
            self.world.steer(verb, jobs[which % len(jobs)])
            self.world.talk()

    @rule(name=names, what=st.sampled_from(["owner", "lost", "reboot", "drain"]), seconds=st.sampled_from([0, 3, 25]))
    def disturb(self, name: str, what: str, seconds: int) -> None:
        if not self.may_disturb:
            return
        world, machine = self.world, self.world.machines[name]
        world.is_disturbed = True
        match what:
            case "owner":
                machine.in_use = not machine.in_use
            case "lost":
                world.cut(name, noticed=False)
                world.away ^= {name}
            case "reboot":
                world.cut(name, noticed=True)
                machine.boot(agent_died=True)
            case "drain":
                world.drain(name, draining=not world.store.workers[name].draining)
        world.tick(seconds)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            assert all(one.reason for one in self.world.store.broken)
            self.world.settle()


def test_a_lease_that_ended_while_the_master_was_away_breaks_no_promise() -> None:
    story = PromisesMachine()
    story.build("round-robin", Order.NONE, slots=[1, 1, 1], times="naive", ahead=0.0, single="hold", disturbed=True)
    story.submit(nodes=1, limit=300, lasts=290, count=1, crash="")
    story.submit(nodes=3, limit=10, lasts=5, count=1, crash="")
    world = story.world
    assert [plan.is_promise for plan in world.store.plans.values()] == [True]
    for name in NAMES:
        world.cut(name, noticed=True)
    world.master_steps()
    world.links.clear()
    world.now += 100  # five leases
    world.start_master()
    assert not world.store.broken


def test_the_next_task_of_a_gang_job_begins_when_its_workers_are_free() -> None:
    """Even if a coarse scan has skipped the time when they were expected to be free, and nothing ended sooner."""
    story = PromisesMachine()
    story.build(
        "cyclic", Order.HOLD, slots=[1, 1, 2], times="thrifty-blend", ahead=0.0, single="hold", disturbed=False
    )
    story.submit(nodes=3, limit=None, lasts=3, count=3, crash="")
    story.time_passes(7)  # its tasks take 2, 1 and 3 s
    assert story.world.is_over()


TestPromises = PromisesMachine.TestCase
TestPromises.settings = settings(
    max_examples=tried(10, 1500), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
