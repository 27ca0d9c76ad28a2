"""Whatever happens to messages, machines and the master: order kept, nothing acknowledged lost, one result each."""

from __future__ import annotations

from typing import Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.policies import REGISTRY
from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Facts, Order, OrderWithin, Outcome, Resource
from loopline_shared.protocol.gpus import Gpu
from loopline_shared.protocol.power import Armed, GoodBye, SleepCause, SleepKind, WakeFacts
from loopline_shared.protocol.transfers import FaultKind
from loopline_shared.spec import JobSpec
from loopline_simulator.full.machine_files import SIZE_BYTES
from tests.campaign import CHECK_EVERY, tried
from tests.properties.world import Machine, World

NAMES = ["ant", "bee", "cat"]
FILES = ["a" * 64, "b" * 64]
names = st.sampled_from(NAMES)
crashes = st.sampled_from(["", "", "", "", "", "before step", "before commit", "before release"])
verbs = st.sampled_from(["cancel", "pause", "resume", "retry", "retry"])
GPUS = {name: tuple(Gpu(gpu, "a GPU") for gpu in gpus) for name, gpus in {"ant": "gh", "bee": "h", "cat": ""}.items()}
"""Ant and bee are agents of one computer."""


def gpus_of(gpus: int, label: str, quorum: int | None, nodes: int) -> int:
    """Return as many GPUs as enough workers have."""
    return 0 if label or nodes > 1 else min(gpus, 1) if quorum else gpus


specs = st.builds(
    lambda count, size, replicas, tries, label, quorum, budget, name, nodes, limit_s, session, delay, more: JobSpec(
        name=name,
        session=session,
        timeout_s=limit_s,
        nodes=(nodes := min(nodes, {"": 3, "fast": 2}.get(label, 1))),
        command=["work"],
        parameters={"i": Range(range=[1, count])} if count > 1 else None,
        size=size,
        max_replicas=None if quorum and nodes == 1 and replicas == 1 else replicas,
        max_attempts=tries,
        retry_delay_s=delay,
        quorum=None if label or nodes > 1 else quorum,
        replica_budget_s=budget,
        max_running=more[0] if nodes == 1 else None,
        checkpoint=CheckpointSpec() if more[2] and nodes == 1 else None,
        requires=Requirements(labels=[label] if label else [], gpus=gpus_of(more[1], label, quorum, nodes)),
    ),
    st.integers(1, 4),
    st.sampled_from([None, None, "unknown", 1.0, 1.0, 2.0, 2.0, 3.0]),
    st.sampled_from([None, 1, 2, "unlimited"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(["", "", "", "fast", "none-has-it"]),
    st.sampled_from([None, None, None, 2]),
    st.sampled_from([None, None, None, 0.0, 3.0]),
    st.sampled_from(["", "", "other"]),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([None, None, 2.0, 40.0]),
    st.sampled_from([None, None, None, "s", "t"]),
    st.sampled_from([None, None, None, 4.0]),
    st.tuples(st.sampled_from([None, None, None, 1, 2]), st.sampled_from([0, 0, 0, 1, 2]), st.booleans()),
)


def facts(slots: int, labels: tuple[str, ...], speed: float = 1.0, gpus: tuple[Gpu, ...] = ()) -> Facts:
    return Facts(
        "linux",
        "x86_64",
        "3.11",
        "0",
        "model",
        cpus=slots,
        memory_bytes=10**9,
        slots=slots,
        labels=labels,
        speed=speed,
        gangs=True,
        resources=(Resource("gpu", len(gpus), gpus),) if gpus else (),
    )


class WorldMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(sorted(REGISTRY)),
        order=st.sampled_from([Order.HOLD, Order.HOLD, *Order]),
        lease=st.sampled_from([5.0, 30.0]),
        stall=st.sampled_from([3.0, 60.0]),
        replicas=st.sampled_from([1, 2, 3, None]),
        slots=st.lists(st.integers(1, 3), min_size=3, max_size=3),
        ahead=st.sampled_from([0.0, 1.0, 2.5, 100.0]),
        quarantine=st.sampled_from([0.0, 2.0, 60.0]),
        speeds=st.lists(st.sampled_from([0.5, 1.0, 1.0, 4.0]), min_size=3, max_size=3),
        programs=st.sampled_from([1, 100]),
        rooms=st.lists(st.sampled_from([0, 0, 2]), min_size=3, max_size=3),
        patience=st.sampled_from([(120.0, 20.0), (2.0, 0.0), (10.0, 2.0)]),
        peers=st.booleans(),
        shares=st.booleans(),
        overdrawn_after=st.sampled_from([0.0, 0.5, 3.0]),
        idle_budget=st.sampled_from([0.0, 1.0, 40.0]),
        within=st.sampled_from(list(OrderWithin)),
        single=st.sampled_from(["deliver", "hold"]),
    )
    def build(
        self,
        policy: str,
        order: Order,
        lease: float,
        stall: float,
        replicas: int | None,
        slots: list[int],
        ahead: float,
        quarantine: float,
        speeds: list[float],
        programs: int,
        rooms: list[int],
        patience: tuple[float, float],
        peers: bool,
        shares: bool,
        overdrawn_after: float,
        idle_budget: float,
        within: OrderWithin,
        single: Literal["deliver", "hold"],
    ) -> None:
        chosen = SchedulerSettings(
            policy,
            order,
            single_task_order=single,
            lease_s=lease,
            stall_after_s=stall,
            max_attempts=2,
            max_replicas=replicas,
            max_jobs=12,
            prefetch_s=ahead,
            max_prefetch=4,
            quarantine_s=quarantine,
            max_programs=programs,
            gang_prepare_s=patience[0],
            gang_grace_s=patience[1],
            peers=peers,
            shares=shares,
            overdrawn_after=overdrawn_after,
            idle_budget_s=idle_budget,
            order_within=within,
            share_half_life_s=20.0,
        )
        labels = [("fast",), (), ("fast", "none-has-it")]
        kinds = zip(NAMES, slots, labels, speeds, rooms, strict=True)
        machines = [
            Machine(name, facts(count, own, speed, GPUS[name]), room=room) for name, count, own, speed, room in kinds
        ]
        self.world = World(chosen, machines, check_every=CHECK_EVERY)

    @rule(
        spec=specs,
        crash=crashes,
        after=st.one_of(st.just([]), st.lists(st.integers(0, 5), max_size=2)),
        user=st.sampled_from(["ann", "ann", "bob"]),
    )
    def submit(self, spec: JobSpec, crash: str, after: list[int], user: str) -> None:
        jobs = sorted(self.world.store.jobs)[-6:]
        chosen = [jobs[which % len(jobs)] for which in after] if jobs else []
        self.world.submit(spec.model_copy(update={"after": chosen}), owner=user)
        self.world.master_steps(crash)

    @rule(name=names)
    def connect(self, name: str) -> None:
        self.world.connect(name)

    @rule(name=names, twice=st.booleans(), crash=crashes, steps=st.booleans())
    def deliver_up(self, name: str, twice: bool, crash: str, steps: bool) -> None:
        self.world.deliver_up(name, twice=twice)
        if steps:
            self.world.master_steps(crash)

    @rule(name=names, twice=st.booleans())
    def deliver_down(self, name: str, twice: bool) -> None:
        self.world.deliver_down(name, twice=twice)

    @rule(name=names, which=st.integers(0, 2), twice=st.booleans())
    def a_stray_frame_arrives(self, name: str, which: int, twice: bool) -> None:
        """From a link that its worker has left, perhaps after the newer one's."""
        strays = self.world.strays(name)
        if strays:
            self.world.arrive_up(strays[which % len(strays)], twice=twice)

    @rule(name=names)
    def hang_up(self, name: str) -> None:
        self.world.machines[name].hang_up()

    @rule(name=names, down=st.booleans())
    def lose_a_frame(self, name: str, down: bool) -> None:
        (self.world.deliver_down if down else self.world.deliver_up)(name, lost=True)

    @rule(name=names, noticed=st.booleans())
    def cut(self, name: str, noticed: bool) -> None:
        self.world.cut(name, noticed=noticed)

    @rule(name=names)
    def report(self, name: str) -> None:
        self.world.machines[name].report()

    @rule(
        name=names,
        reports=st.booleans(),
        which=st.integers(0, 2),
        ends=st.sampled_from(Outcome),
        lies=st.sampled_from([False, False, True]),
    )
    def a_process_ends(self, name: str, reports: bool, which: int, ends: Outcome, lies: bool = False) -> None:
        machine = self.world.machines[name]
        if machine.processes:
            machine.end(list(machine.processes)[which % len(machine.processes)], ends, lies=lies)
        if reports:
            machine.report()

    @rule(
        name=names,
        rounds=st.integers(1, 3),
        done_s=st.sampled_from([0.1, 1.0, 5.0]),
        crash=crashes,
        then=st.sampled_from(["its owner", "a reboot", "silence", "a failure", "nothing"]),
        submits=st.booleans(),
    )
    def tasks_save_their_state(
        self, name: str, rounds: int, done_s: float, crash: str, then: str, submits: bool
    ) -> None:
        """Checkpoints are reported, often for the last time before their worker is gone."""
        machine = self.world.machines[name]
        if submits:
            spec = JobSpec(command=["work"], checkpoint=CheckpointSpec(), max_attempts=2)
            self.world.submit(spec)
            self.run_smoothly(name, 2, 0, None)
        for count in range(1, rounds + 1):
            self.world.pass_time(0.5)
            for attempt in list(machine.processes):
                machine.checkpoints.save(attempt, count * done_s)
            machine.report()
            self.world.deliver_up(name)
            self.world.master_steps(crash)
            self.world.deliver_down(name)
        if then == "its owner":
            machine.in_use = True
            self.world.pass_time(40.0)
        elif then == "a reboot":
            self.reboot(name, False, True)
        elif then == "a failure":
            self.a_process_ends(name, True, 0, Outcome.FAILED)
        elif then == "silence":
            self.world.cut(name, noticed=False)
            self.world.pass_time(40.0)
        self.all_run_smoothly(1, 0, None)

    @rule(
        name=names,
        kind=st.sampled_from(SleepKind),
        by=st.sampled_from(SleepCause),
        wakes=st.booleans(),
        returns=st.booleans(),
        crash=crashes,
    )
    def the_computer_sleeps(
        self, name: str, kind: SleepKind, by: SleepCause, wakes: bool, returns: bool, crash: str
    ) -> None:
        """It may return at once, or be woken when it connects for some other reason."""
        wake = WakeFacts("eth0", "52:54:00:12:34:56", from_suspend=Armed.YES, from_off=Armed.YES, can_suspend=True)
        self.world.machines[name].report(GoodBye(kind, by, wake if wakes else None))
        self.world.deliver_up(name)
        self.world.master_steps(crash)
        self.world.cut(name, noticed=False)
        if kind is SleepKind.OFF:
            self.world.machines[name].boot()
        if returns:
            self.world.connect(name)

    @rule(name=names, reports=st.booleans(), pauses=st.sampled_from([False, False, True]))
    def the_owner_comes_or_goes(self, name: str, reports: bool, pauses: bool) -> None:
        machine = self.world.machines[name]
        machine.in_use = not machine.in_use
        if pauses:
            machine.look("for good")
        if reports:
            machine.report()

    @rule(name=names, forgets=st.booleans(), agent_died=st.booleans())
    def reboot(self, name: str, forgets: bool, agent_died: bool) -> None:
        self.world.cut(name, noticed=True)
        self.world.machines[name].boot(forgets=forgets, agent_died=agent_died)

    @rule(crash=crashes)
    def master_steps(self, crash: str) -> None:
        self.world.master_steps(crash)

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(
        verb=st.sampled_from(["cancel", "pause", "resume", "retry", "retry"]),
        which=st.integers(0, 5),
        steps=st.booleans(),
    )
    def steer(self, verb: str, which: int, steps: bool) -> None:
        jobs = sorted(self.world.store.jobs)
        if jobs:
            self.world.steer(verb, jobs[which % len(jobs)])
        if steps:
            self.world.master_steps()

    @rule(
        name=names,
        files=st.sets(st.sampled_from(FILES)),
        share=st.sampled_from([0.0, 0.3, 1.0]),
        fault=st.sampled_from([None, None, *FaultKind]),
        lives=st.sampled_from([None, False, True]),
        gives_up=st.booleans(),
        by_all=st.booleans(),
        answers=st.booleans(),
        crash=crashes,
    )
    def files_come(
        self,
        name: str,
        files: set[str],
        share: float,
        fault: FaultKind | None,
        lives: bool | None,
        gives_up: bool,
        by_all: bool,
        answers: bool,
        crash: str,
    ) -> None:
        """Files are wanted, come, or are no longer wanted; a plan may come much later than it was asked for."""
        if not self.world.settings.peers:
            return
        for each in NAMES if by_all else [name]:
            for file in sorted(files):
                self.world.machines[each].files.want(file)
        if by_all:
            self.all_run_smoothly(1, 0, None)
            self.world.planner_answers()
            self.all_run_smoothly(1, 0, None)
        own = self.world.machines[name].files
        for file in sorted(files):
            if fault is not None:
                own.blame(file, fault, lives)
            if gives_up:
                own.fetching.pop(file, None)
        self.world.receive_files(name, int(share * SIZE_BYTES))
        if answers:
            self.world.planner_answers()
            self.world.master_steps(crash)
        self.world.machines[name].report()

    @rule(name=names)
    def forget(self, name: str) -> None:
        """A worker that is away is forgotten, and comes back as a new one."""
        self.world.forget(name)

    @rule(name=names, draining=st.booleans())
    def drain(self, name: str, draining: bool) -> None:
        self.world.drain(name, draining=draining)

    @rule(name=names, rounds=st.integers(1, 4), which=st.integers(0, 2), ends=st.sampled_from([None, *Outcome]))
    def run_smoothly(self, name: str, rounds: int, which: int, ends: Outcome | None) -> None:
        """So that runs get somewhere between disasters."""
        for _ in range(rounds):
            if self.world.machines[name].link is None:
                self.world.connect(name)
            if ends is not None:
                self.a_process_ends(name, True, which, ends)
            self.world.machines[name].report()
            for _ in range(3):
                self.world.deliver_up(name)
            self.world.master_steps()
            for _ in range(3):
                self.world.deliver_down(name)

    @rule(rounds=st.integers(1, 3), which=st.integers(0, 2), ends=st.sampled_from([None, None, *Outcome]))
    def all_run_smoothly(self, rounds: int, which: int, ends: Outcome | None) -> None:
        for name in NAMES:
            self.run_smoothly(name, rounds, which, ends)

    @rule(name=names, rounds=st.integers(1, 3), waits=st.booleans())
    def one_fails_where_others_succeed(self, name: str, rounds: int, waits: bool) -> None:
        """So that it comes to quarantines, and to predictions."""
        for _ in range(rounds):
            self.world.submit(JobSpec(command=["work"], parameters={"i": Range(range=[1, 4])}, max_attempts=2))
            for each in NAMES * 2:
                self.run_smoothly(each, 1, 0, Outcome.FAILED if each == name else Outcome.SUCCEEDED)
        if waits:
            self.world.pass_time(2.0)

    @rule(
        nodes=st.sampled_from([2, 3]),
        name=names,
        by=st.sampled_from(["its owner", "silence", "a reboot", "a crash", "nobody"]),
        rounds=st.integers(0, 2),
        seconds=st.sampled_from([0.5, 6.0, 40.0]),
        comes_back=st.booleans(),
    )
    def a_gang_is_disturbed(
        self, nodes: int, name: str, by: str, rounds: int, seconds: float, comes_back: bool
    ) -> None:
        """So that gangs get as far as to be halted, moved and thawed."""
        world, machine = self.world, self.world.machines[name]
        world.submit(JobSpec(command=["work"], nodes=nodes, max_attempts=2))
        for _ in range(2 + rounds):
            self.all_run_smoothly(1, 0, None)
        if by == "its owner":
            machine.in_use = True
        elif by == "silence":
            world.cut(name, noticed=False)
        elif by == "a reboot":
            self.reboot(name, False, True)
        elif by == "a crash":
            world.master_steps("before release")
        others = [other for other in NAMES if other != name or by == "its owner"]
        for other in others * (1 + rounds):
            self.run_smoothly(other, 1, 0, None)
        world.pass_time(seconds)
        if comes_back:
            machine.in_use = False
            self.run_smoothly(name, 2, 0, None)
        for other in others:
            self.run_smoothly(other, 1, 0, None)

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.world.has_failed:
            self.world.settle()


TestWorld = WorldMachine.TestCase
TestWorld.settings = settings(
    max_examples=tried(13, 3000), stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
