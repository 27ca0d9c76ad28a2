"""Wide tasks start in bounded time beside an endless stream of narrow ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_master.core.events import (
    JobCancelled,
    JobLimited,
    JobPaused,
    JobResumed,
    WorkerDrained,
    WorkerUndrained,
)
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.entities import Job
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.reservations.reservation_wing import Reservations
from loopline_shared.model import AttemptId, AttemptState, Order, Resource, WithheldGpu
from loopline_shared.protocol.gpus import GPU, Gpu
from tests.campaign import PATIENT
from tests.scheduling.driver import Grid, facts
from tests.scheduling.lives import VERBS, Life
from tests.scheduling.units import limit, offering, running, submit, worker_of

POLICIES = sorted(REGISTRY)
NARROW_S = 10.0
WIDE = [{"slots": 3}, {"exclusive": True}, {"needs": {"fpga": 2}}, {"gpus": 2}]


class Stream:
    """Workers with three slots each, under a stream of narrow tasks that never ends. Each takes 10 s."""

    def __init__(self, policy: str = "first-come", workers: int = 2, **narrow: Any) -> None:
        self.grid = Grid(policy=policy, order=Order.NONE, prefetch_s=5.0)
        self.names, self.narrow = [f"w{number}" for number in range(workers)], narrow
        self.begun: dict[AttemptId, float] = {}
        self.slots: dict[str, int] = {}  # offered by workers whose owners withhold some
        for name in self.names:
            self.join(name)
        self.jobs = [self.add(4 * workers)]
        self.pass_s(NARROW_S / 3)
        self.add(4 * workers)

    def join(self, name: str) -> None:
        offered = offering(3, fpga=2)
        gpus = Resource(GPU, 2, (Gpu(f"GPU-1-{name}", "A4000"), Gpu(f"GPU-2-{name}", "A4000")))
        self.grid.join(name, replace(offered, resources=(*offered.resources, gpus)))

    def add(self, count: int) -> int:
        return submit(self.grid, count, "bob", size=count * NARROW_S, **self.narrow)

    def pass_s(self, seconds: float) -> None:
        """Let time pass in steps of a second. A narrow task ends after 10 s, and another one comes for it."""
        for _ in range(round(seconds)):
            self.grid.now += 1.0
            for name in self.names:
                there = self.grid.running(name)
                for attempt in there:
                    self.begun.setdefault(attempt, self.grid.now)
                for attempt in there:
                    is_narrow = self.grid.store.jobs[attempt.job].owner == "bob"
                    waits = attempt in self.grid.agents[name].waiting()
                    if is_narrow and not waits and self.grid.now - self.begun[attempt] >= NARROW_S:
                        self.grid.end(attempt, wall_s=NARROW_S, cpu_s=NARROW_S)
                        self.add(1)
                        break
                self.grid.report(name, slots=self.slots.get(name))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("wide", WIDE)
def test_two_wide_tasks_start_within_twice_the_longest_narrow_task(policy: str, wide: dict[str, Any]) -> None:
    narrow = {"fpga": 1} if "needs" in wide else {}
    stream = Stream(policy, needs=narrow, requires={"gpus": 1} if "gpus" in wide else {})
    needs = wide.get("needs", {})
    requires = {name: value for name, value in wide.items() if name != "needs"}
    one, two = (submit(stream.grid, needs=needs, requires=requires, timeout_s=60.0) for _ in range(2))
    stream.pass_s(2 * NARROW_S + 2)
    assert all(running(stream.grid, job) for job in (one, two))


def test_narrow_tasks_take_the_slots_beside_a_reserved_resource() -> None:
    stream = Stream(workers=1, needs={"fpga": 1})
    other = submit(stream.grid, 30, "cat", size=300.0)
    job = submit(stream.grid, needs={"fpga": 2})
    assert stream.grid.job(job).reserved == "w0"
    first = running(stream.grid)[0]
    stream.grid.end(first, wall_s=1.0, cpu_s=1.0)
    assert running(stream.grid, other), "a task without an fpga takes the free slot"
    assert not running(stream.grid, job)


def reserved(stream: Stream) -> list[str]:
    return sorted(job.reserved for job in stream.grid.store.jobs.values() if job.reserved)


def test_each_user_reserves_one_worker() -> None:
    stream = Stream(workers=4)
    for _ in range(2):
        for owner in ("ann", "cat"):
            submit(stream.grid, 2, owner, requires={"slots": 2})
    assert len(reserved(stream)) == 2


@pytest.mark.parametrize("how", ["cancel", "pause", "drain", "leave", "restart"])
def test_reservation_ends_when_its_job_or_its_worker_cannot_use_it(how: str) -> None:
    stream = Stream()
    grid = stream.grid
    job = submit(grid, requires={"slots": 3})
    (name,) = reserved(stream)
    match how:
        case "cancel":
            grid.ask(JobCancelled(job))
        case "pause":
            grid.ask(JobPaused(job))
        case "drain":
            grid.ask(WorkerDrained(name))
        case "leave":
            grid.leave(name)
        case "restart":
            grid.restart()
    assert name not in reserved(stream)
    if how == "pause":
        grid.ask(JobResumed(job))
    if how == "restart":
        for one in stream.names:
            stream.join(one)
    if how != "cancel":
        assert len(reserved(stream)) == 1


def test_wide_task_goes_to_a_worker_that_becomes_free_elsewhere() -> None:
    grid = Grid()
    grid.join("old", facts(3))
    submit(grid, 3, timeout_s=300.0)
    job = submit(grid, requires={"slots": 3})
    assert grid.job(job).reserved == "old"
    said = explain_job(grid.scheduler, job).sentence
    assert "old is reserved for its next task" in said
    assert "room there is expected in 300 s" in said
    grid.join("new", facts(3))
    assert [worker_of(grid, one) for one in running(grid, job)] == ["new"]
    assert grid.job(job).reserved == ""
    assert len(running(grid, submit(grid))) == 0
    grid.end(running(grid)[0])
    assert len(running(grid)) == 4, "its slots are free for others again"


@pytest.mark.parametrize("how", ["max_running", "limit"])
def test_wide_task_starts_though_its_class_changes_while_it_has_a_reservation(how: str) -> None:
    stream = Stream(workers=1, requires={"gpus": 1})
    job = submit(stream.grid, requires={"gpus": 2}, needs={"license": 1} if how == "limit" else {}, timeout_s=60.0)
    if how == "limit":
        limit(stream.grid, "license", 5)
    else:
        assert reserved(stream) == ["w0"]
        stream.grid.ask(JobLimited(job, 1))
    assert reserved(stream) == ["w0"]
    stream.pass_s(2 * NARROW_S + 2)
    assert running(stream.grid, job)


def test_job_with_a_new_class_reserves_a_worker() -> None:
    stream = Stream()
    job = submit(stream.grid, requires={"slots": 3}, timeout_s=60.0)
    for event in (JobPaused(job), JobLimited(job, 2), JobResumed(job)):
        stream.grid.ask(event)
    assert len(reserved(stream)) == 1


def test_restored_scheduler_reserves_for_the_same_job() -> None:
    grid = Grid(policy="first-come", order=Order.NONE, prefetch_s=0.0, max_replicas=1)
    grid.join("w0", facts(4))
    submit(grid, 4, "bob", size=40.0)
    first, second, _ = (submit(grid, requires={"slots": slots}) for slots in (2, 3, 2))
    grid.ask(JobCancelled(first))
    grid.ask(WorkerDrained("w0"))
    copy, event = Scheduler(grid.store.snapshot()), WorkerUndrained("w0")
    copy.step([event], grid.now)
    grid.step(event)
    for scheduler in (copy, grid.scheduler):
        assert [job.id for job in scheduler.state.jobs.values() if job.reserved] == [second]


@pytest.mark.parametrize("wide", [{"slots": 3}, {"exclusive": True}, {"gpus": 2}])
def test_wide_task_starts_though_an_owner_withholds_part_of_one_worker(wide: dict[str, Any]) -> None:
    stream = Stream(workers=2, requires={"gpus": 1} if "gpus" in wide else {})
    stream.grid.agents["w0"].withheld_gpus = (WithheldGpu("GPU-1-w0", "its owner uses it"),)
    stream.slots["w0"] = 2
    stream.pass_s(NARROW_S + 2)
    job = submit(stream.grid, requires=wide, timeout_s=60.0)
    assert reserved(stream) == ["w1"]
    stream.pass_s(2 * NARROW_S + 2)
    assert running(stream.grid, job)


@pytest.mark.parametrize("wide", [{"exclusive": True}, {"gpus": 2}])
def test_reservation_moves_when_its_worker_has_too_little_left(wide: dict[str, Any]) -> None:
    stream = Stream(workers=2, requires={"gpus": 1} if "gpus" in wide else {})
    submit(stream.grid, requires=wide, timeout_s=60.0)
    (name,) = reserved(stream)
    stream.grid.agents[name].withheld_gpus = (WithheldGpu(f"GPU-1-{name}", "its owner uses it"),)
    stream.slots[name] = 2
    stream.pass_s(2)
    assert reserved(stream) == [*{"w0", "w1"} - {name}]


@pytest.mark.parametrize("endless", [{}, {"needs": {"fpga": 1}}, {"requires": {"gpus": 1}}])
def test_worker_with_an_endless_task_is_not_reserved(endless: dict[str, Any]) -> None:
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    gpus = Resource(GPU, 2, (Gpu("GPU-1", "A4000"), Gpu("GPU-2", "A4000")))
    offered = offering(3, fpga=2)
    grid.join("w0", replace(offered, resources=(*offered.resources, gpus)))
    submit(grid, 1, "bob", **endless)
    submit(grid, 1, requires={"slots": 2 if endless else 3, "gpus": 2 * bool(endless)}, needs={"fpga": 2})
    other = submit(grid, 2, "cat", timeout_s=20.0)
    assert [job.reserved for job in grid.store.jobs.values() if job.reserved] == []
    assert len(running(grid, other)) == 2


def test_wide_task_reserves_a_worker_beside_an_endless_one() -> None:
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    grid.join("w0", facts(3))
    endless = submit(grid, 1, "bob")
    job = submit(grid, requires={"slots": 2}, owner="eve", timeout_s=20.0)
    grid.join("w1", facts(3))
    submit(grid, 2, "cat", timeout_s=20.0)
    wide = submit(grid, requires={"slots": 3})
    assert running(grid, endless)
    assert running(grid, job)
    assert grid.job(wide).reserved == "w1"


def test_reservation_ends_while_a_task_on_its_worker_is_frozen() -> None:
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    grid.join("w0", facts(3))
    narrow = submit(grid, 1, "bob", timeout_s=20.0)
    wide = submit(grid, requires={"slots": 3})
    assert grid.job(wide).reserved == "w0"
    assert running(grid, narrow)
    grid.report("w0", frozen=True)
    grid.step()
    assert grid.job(wide).reserved == ""


# Units of the grid's limits.


class Licences:
    """Six slots, under an endless stream of tasks of 10 s that hold one licence each."""

    def __init__(self, licences: int = 2, policy: str = "first-come", **narrow: Any) -> None:
        self.stream = Stream(policy, needs={"lic": 1}, **narrow)
        self.grid = self.stream.grid
        limit(self.grid, "lic", licences)
        self.stream.pass_s(2 * NARROW_S)

    def submit(self, owner: str = "ann", units: int = 2, **more: Any) -> int:
        return submit(self.grid, 1, owner, needs={"lic": units, **more.pop("needs", {})}, timeout_s=30.0, **more)


@pytest.mark.parametrize("policy", POLICIES)
def test_task_that_needs_all_licences_starts_within_two_narrow_tasks(policy: str) -> None:
    licences = Licences(policy=policy)
    job = licences.submit()
    licences.stream.pass_s(2 * NARROW_S + 2)
    assert running(licences.grid, job)


def test_other_tasks_leave_it_no_more_licences_than_it_needs() -> None:
    licences = Licences(4)
    grid = licences.grid
    limit(grid, "dongle", 1)
    submit(grid, 1, "cat", needs={"dongle": 1}, timeout_s=500.0)
    job = licences.submit(needs={"dongle": 1})
    licences.stream.pass_s(3 * NARROW_S)
    assert grid.job(job).reserved
    assert len(running(grid)) == 1 + 2, "two of the four licences are set aside"
    assert not running(grid, job)
    narrow = next(
        one.id for one in grid.store.jobs.values() if one.owner == "bob" and not one.is_over and not one.running
    )
    assert f"2 lic are set aside for job {job}" in explain_job(grid.scheduler, narrow).sentence


@pytest.mark.parametrize("how", ["cancel", "pause", "hold"])
def test_licences_are_not_set_aside_for_a_job_that_may_not_start(how: str) -> None:
    licences = Licences()
    grid = licences.grid
    job = licences.submit()
    assert reserved(licences.stream)
    match how:
        case "cancel":
            grid.ask(JobCancelled(job))
        case "pause":
            grid.ask(JobPaused(job))
        case "hold":
            limit(grid, "lic", 1)
    assert not reserved(licences.stream)
    licences.stream.pass_s(NARROW_S + 2)
    assert len(running(grid)) == (1 if how == "hold" else 2)


def test_licences_are_set_aside_for_one_job_at_a_time() -> None:
    licences = Licences()
    limit(licences.grid, "dongle", 2)
    one = licences.submit("ann", needs={"dongle": 1})
    two = licences.submit("cat", 1, needs={"dongle": 2})
    assert [bool(licences.grid.job(job).reserved) for job in (one, two)] == [True, False]
    licences.stream.pass_s(4 * NARROW_S)
    grid = licences.grid
    grid.end(running(grid, one)[0], wall_s=20.0, cpu_s=20.0)
    licences.stream.pass_s(4 * NARROW_S)
    assert running(grid, two)


def test_licences_are_not_set_aside_while_a_holder_has_no_expected_end() -> None:
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    grid.join("w0", facts(4))
    limit(grid, "lic", 2)
    submit(grid, 1, "bob", needs={"lic": 1})
    wide = submit(grid, needs={"lic": 2})
    narrow = submit(grid, needs={"lic": 1}, owner="cat")
    assert not grid.job(wide).reserved
    assert running(grid, narrow)


@pytest.mark.parametrize("wide", [{"needs": {"lic": 2}}, {"requires": {"slots": 3}}])
def test_stream_of_wide_tasks_does_not_keep_narrow_ones_out(wide: dict[str, Any]) -> None:
    grid = Grid(policy="first-come", order=Order.NONE, prefetch_s=0.0, max_replicas=1)
    grid.join("w0", facts(3))
    limit(grid, "lic", 2)
    needs = {"lic": 1} if "needs" in wide else {}
    started = []
    submit(grid, 60, "bob", timeout_s=10.0, needs=needs)
    submit(grid, 60, "ann", timeout_s=10.0, **wide)
    for _ in range(30):
        (first, *_) = running(grid)
        started.append(grid.job(first.job).owner)
        grid.now += 5.0
        grid.end(first, wall_s=5.0, cpu_s=5.0)
    assert {"ann", "bob"} == {*started[-12:]}


class WideLife(Life):
    """Two workers with three slots each, two limits, and jobs of three users that need several units at once."""

    def workers_join(self) -> None:
        for limit_name in ("m", "n"):
            limit(self.grid, limit_name, 3)
        for name in ("ant", "bee"):
            self.grid.join(name, facts(3))

    def submit(self, owner: str, slots: int, m: int, n: int) -> None:
        needs = {name: units for name, units in (("m", m), ("n", n)) if units}
        self.jobs.append(submit(self.grid, 2, owner, requires={"slots": slots}, needs=needs, timeout_s=100.0))

    def pause(self, job: int, is_paused: bool) -> None:
        if job in self.jobs:
            self.grid.ask(JobPaused(job) if is_paused else JobResumed(job))

    def check_starts(self, before: set[AttemptId]) -> None:
        """Nothing: the grid checks its invariants after each step, the reservations' among them."""

    def run_everything(self) -> None:
        for job in self.jobs:
            self.pause(job, False)
        super().run_everything()


amounts = st.integers(0, 3)
wide_steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(["ann", "bob", "cat"]), st.integers(1, 3), amounts, amounts),
        st.tuples(st.just("pause"), st.integers(1, 6), st.booleans()),
        VERBS[0],
        VERBS[2],
    ),
    max_size=40,
)


@PATIENT
@given(steps=wide_steps, policy=st.sampled_from(POLICIES))
def test_no_wide_tasks_wait_for_one_another_in_a_circle(steps: list[Any], policy: str) -> None:
    life = WideLife(policy)
    life.play(steps)
    life.run_everything()


def test_units_of_a_lost_attempt_without_a_fence_are_not_reserved() -> None:
    """It has no fence: it started before the limit was set."""
    grid = Grid(lease_s=20.0, policy="first-come")
    grid.join("ant", facts(4))
    grid.join("bee", facts(4))
    submit(grid, 1, "dan", needs={"lic": 3}, timeout_s=1000.0)
    limit(grid, "lic", 4)
    submit(grid, 1, "dan", needs={"lic": 3}, timeout_s=1000.0)
    (first,) = running(grid)
    name = worker_of(grid, first)
    other = next(one for one in ("ant", "bee") if one != name)
    grid.leave(name)
    for _ in range(3):
        grid.wait(15.0)
        grid.report(other)
    assert grid.store.attempts[first].state is AttemptState.LOST
    wide = submit(grid, 1, "ann", needs={"lic": 2}, timeout_s=30.0)
    narrow = submit(grid, 1, "bob", needs={"lic": 1}, timeout_s=30.0)
    assert not grid.job(wide).reserved
    assert running(grid, narrow), "one licence is free"


def test_step_tries_to_reserve_for_four_classes_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be reserved, since no end of the running tasks is known. All classes are tried within seconds."""
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    labels = [f"l{number}" for number in range(10)]
    grid.join("w0", replace(facts(2), labels=tuple(labels)))
    submit(grid, 2, "bob")
    jobs = [submit(grid, requires={"slots": 2, "labels": [label]}) for label in labels]
    tries, reserve = list[list[int]](), Reservations._reserve

    def counting(self: Reservations, job: Job, *more: Any) -> bool:
        tries[-1].append(job.id)
        return reserve(self, job, *more)

    monkeypatch.setattr(Reservations, "_reserve", counting)
    for _ in range(len(jobs)):
        tries.append([])
        grid.now += 1.0
        grid.step()
    assert {len(step) for step in tries} == {4}
    assert {job for step in tries for job in step} == {*jobs}


def test_reservation_is_for_the_call_of_a_session_that_is_wide() -> None:
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    for name in ("ant", "bee"):
        grid.join(name, facts(2))
    submit(grid, 4, "bob", timeout_s=100.0)
    narrow = submit(grid, 30, "ann", session="s", timeout_s=50.0)
    wide = submit(grid, 1, "ann", session="s", requires={"slots": 2}, timeout_s=50.0)
    assert (grid.job(narrow).reserved, bool(grid.job(wide).reserved)) == ("", True)


def test_step_looks_for_a_worker_for_the_first_of_many_users_with_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would change nothing: no unit may be set aside before the first has had its turn."""
    grid = Grid(policy="first-come", prefetch_s=0.0, max_replicas=1)
    for number in range(8):
        grid.join(f"w{number}", facts(2))
    limit(grid, "m", 4)
    submit(grid, 1, "bob", needs={"m": 4}, timeout_s=1000.0)
    for number in range(20):
        submit(grid, 1, f"user{number}", needs={"m": 4}, timeout_s=100.0)
    looks, first = list[int](), Reservations._first_to_have_room

    def counting(self: Reservations, job: Job) -> Any:
        looks.append(job.id)
        return first(self, job)

    monkeypatch.setattr(Reservations, "_first_to_have_room", counting)
    grid.now += 1.0
    grid.step()
    assert len(looks) <= 2
