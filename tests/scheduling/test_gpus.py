"""GPUs in the wing resources: the master chooses them, and no two attempts have the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import JobSubmitted, LimitChanged, WorkerForgotten
from loopline_master.core.explain.demand import demand_view
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Declined, Submitted
from loopline_master.core.kernel.invariants import check_worker
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_shared.model import AttemptId, Facts, Outcome, Resource, WithheldGpu
from loopline_shared.protocol.gpus import GPU, WHOLE_GPU, Gpu, GpuKind
from tests.scheduling.driver import Grid, facts, spec
from tests.scheduling.lives import VERBS, Life

POLICIES = sorted(REGISTRY)
SMALL = Gpu("GPU-small", "NVIDIA RTX A2000 12GB", 12 * 10**9, "550.54", "8.6", 0)
LARGE = Gpu("GPU-large", "NVIDIA A100-SXM4-80GB", 80 * 10**9, "550.54", "8.0", 1)
OLD = Gpu("GPU-old", "NVIDIA GeForce GTX 1080", 8 * 10**9, "550.54", "6.1", 2)
UNKNOWN = Gpu("GPU-unknown", "NVIDIA TITAN V")


def with_gpus(*gpus: Gpu, slots: int = 4) -> Facts:
    return replace(facts(slots), resources=(Resource(GPU, len(gpus), gpus),))


def submit(grid: Grid, count: int = 1, **requires: Any) -> int:
    reply = grid.ask(JobSubmitted("ann", spec(count, requires={"gpus": 1, **requires})))
    assert isinstance(reply, Submitted), reply
    return reply.job


def held(grid: Grid) -> dict[AttemptId, tuple[str, ...]]:
    """Return the GPUs of each running attempt, as its worker was sent them."""
    return {
        attempt: run.gpus
        for agent in grid.agents.values()
        for attempt, run in agent.running.items()
        if run is not None
    }


def ids_of(grid: Grid, job: int) -> list[str]:
    return [gpu for attempt, gpus in held(grid).items() if attempt.job == job for gpu in gpus]


@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        (GpuKind(), {SMALL, LARGE, OLD, UNKNOWN}),
        (GpuKind(memory_bytes=10 * 10**9), {SMALL, LARGE}),
        (GpuKind(model="a2000"), {SMALL}),
        (GpuKind(model="GTX 1080"), {OLD}),
        (GpuKind(model="A20"), set()),
        (GpuKind(capability="7.0"), {SMALL, LARGE}),
        (GpuKind(capability="10.0"), set()),
        (GpuKind(10 * 10**9, "nvidia", "8.6"), {SMALL}),
    ],
)
def test_kind_includes_gpus_with_its_memory_model_and_capability(kind: GpuKind, accepted: set[Gpu]) -> None:
    assert {gpu for gpu in (SMALL, LARGE, OLD, UNKNOWN) if kind.includes(gpu)} == accepted


@pytest.mark.parametrize("policy", POLICIES)
def test_each_task_gets_gpus_of_its_own_and_all_tasks_run(policy: str) -> None:
    grid = Grid(policy=policy, prefetch_s=10.0)
    grid.join("ant", with_gpus(SMALL, LARGE))
    grid.join("bee", with_gpus(OLD))
    grid.join("cat", facts(4))
    job, free = submit(grid, 6), grid.submit(4)
    assert sorted(ids_of(grid, job)) == ["GPU-large", "GPU-old", "GPU-small"]
    assert ids_of(grid, free) == []
    for _ in range(20):
        if not (there := held(grid)):
            break
        grid.now += 1.0
        grid.end(next(iter(there)))
        for name in grid.agents:
            grid.report(name)
        assert max(Counter(ids_of(grid, job)).values(), default=0) <= 1
    assert [grid.job(each).succeeded for each in (job, free)] == [6, 4]


def test_least_capable_gpu_that_suffices_is_chosen() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(LARGE, OLD, SMALL))
    assert ids_of(grid, submit(grid)) == ["GPU-old"]
    assert ids_of(grid, submit(grid, gpu_memory_bytes=10 * 10**9)) == ["GPU-small"]
    assert ids_of(grid, submit(grid, gpu_model="A100")) == ["GPU-large"]


def test_task_waits_for_all_of_its_gpus() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(LARGE, OLD, SMALL))
    one, two = submit(grid, 2), submit(grid, gpus=2)
    assert len(ids_of(grid, one)) == 2
    assert ids_of(grid, two) == []
    grid.end(next(iter(held(grid))))
    assert len(ids_of(grid, two)) == 2


def test_job_for_gpus_that_no_worker_has_stalls_with_a_warning() -> None:
    grid = Grid(stall_after_s=0.0)
    grid.join("ant", with_gpus(OLD))
    reply = grid.ask(JobSubmitted("ann", spec(requires={"gpus": 1, "gpu_capability": "8.0"})))
    assert isinstance(reply, Submitted)
    assert "1 GPU of compute capability 8.0" in reply.warnings[0]
    assert grid.job(reply.job).stalled
    grid.join("bee", with_gpus(SMALL))
    assert ids_of(grid, reply.job) == ["GPU-small"]


def test_gpu_keeps_its_attempt_across_a_restart_and_a_silence() -> None:
    grid = Grid(lease_s=20.0)
    grid.join("ant", with_gpus(SMALL))
    job = submit(grid, 2)
    (attempt,) = held(grid)
    grid.restart()
    grid.join("ant")
    assert grid.store.attempts[attempt].gpus == ("GPU-small",)
    assert [*held(grid)] == [attempt]
    grid.now += 50.0
    grid.step()
    grid.join("ant")
    assert [*held(grid)] == [attempt], "it was lost, and may still be running"
    grid.end(attempt)
    assert ids_of(grid, job) == ["GPU-small"]


def test_gpu_stays_with_the_earlier_of_two_computers_when_the_master_restarts() -> None:
    """Whichever of them comes back first, and although the rows are sorted by name."""
    grid = Grid()
    for name in ("bee", "ant"):
        grid.now += 1.0
        grid.join(name, replace(with_gpus(SMALL), machine=f"machine of {name}"))
    for order in (("ant", "bee"), ("bee", "ant")):
        grid.restart()
        for name in order:
            grid.join(name)
        counts = grid.scheduler.state.own(CountedUnits)
        assert (counts.claimed_elsewhere("bee"), [*counts.claimed_elsewhere("ant")]) == ({}, [SMALL.id])
        job = submit(grid)
        (attempt,) = held(grid)
        assert grid.attempt(job).worker == "bee"
        grid.end(attempt)


def test_two_jobs_of_one_class_share_a_gpu_after_a_restart() -> None:
    """The restarted master knows the GPU as used although nothing has been reported yet."""
    grid = Grid()
    for name in ("ant", "bee"):
        grid.join(name, with_gpus(SMALL))
    jobs = [submit(grid, 2), submit(grid, 2)]
    scheduler = Scheduler(grid.store.snapshot())
    requirements = scheduler.state.index.requirements
    for job in jobs:
        assert not requirements.serving(scheduler.state.jobs[job])


def test_gpu_of_two_workers_of_one_computer_is_given_to_one_task() -> None:
    grid = Grid()
    for name in ("ant", "bee"):
        grid.join(name, with_gpus(SMALL))
    job = submit(grid, 3)
    for _ in range(3):
        assert ids_of(grid, job) == ["GPU-small"]
        grid.end(next(iter(held(grid))))
    assert grid.job(job).succeeded == 3


def test_forgotten_worker_leaves_its_gpu_to_the_other_worker_of_its_computer() -> None:
    grid = Grid(lease_s=20.0)
    grid.join("ant", with_gpus(SMALL))
    job = submit(grid, 2)
    grid.join("bee", with_gpus(SMALL))
    grid.leave("ant")
    grid.now += 50.0
    grid.report("bee")
    assert not grid.agents["bee"].running
    grid.ask(WorkerForgotten("ant"))
    grid.report("bee")
    assert [attempt.job for attempt in grid.agents["bee"].running] == [job]


def test_withheld_gpu_is_given_to_no_task_until_it_is_offered_again() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(SMALL, LARGE))
    ant = grid.agents["ant"]
    ant.withheld_gpus = (WithheldGpu(SMALL.id, "its owner uses it"),)
    grid.report("ant")
    job = submit(grid, 3)
    assert ids_of(grid, job) == ["GPU-large"]
    ant.withheld_gpus = (WithheldGpu(LARGE.id, "a driver call hangs"),)
    grid.report("ant")
    assert sorted(ids_of(grid, job)) == ["GPU-large", "GPU-small"], "the attempt on the withheld one stays"
    for attempt in [*held(grid)]:
        grid.end(attempt)
    assert ids_of(grid, job) == ["GPU-small"]


def test_gpu_withheld_while_no_job_needs_gpus_is_given_to_no_later_task() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(SMALL, LARGE))
    submit(grid)
    grid.end(next(iter(held(grid))))
    grid.agents["ant"].withheld_gpus = (WithheldGpu(SMALL.id, "its owner uses it"),)
    grid.report("ant")
    assert ids_of(grid, submit(grid, 2)) == ["GPU-large"]


def test_worker_that_gives_a_task_back_uses_up_no_attempt() -> None:
    grid = Grid(max_attempts=1)
    grid.join("ant", with_gpus(SMALL, LARGE))
    job = submit(grid)
    grid.agents["ant"].withheld_gpus = (WithheldGpu(SMALL.id, "another agent of this computer has it"),)
    grid.end(next(iter(held(grid))), Outcome.GIVEN_BACK)
    assert ids_of(grid, job) == ["GPU-large"]


def test_gpu_of_two_attempts_breaks_an_invariant_that_a_live_master_samples() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(SMALL, LARGE))
    submit(grid, 2)
    state = grid.scheduler.state
    one, other = state.attempts.values()
    check_worker(state, "ant")
    other.gpus = one.gpus
    state.own(CountedUnits).recount([(state.jobs[one.job], one), (state.jobs[one.job], other)])
    with pytest.raises(AssertionError, match="shares the GPUs"):
        check_worker(state, "ant")


def test_tasks_that_wait_for_gpus_are_demand_for_workers_with_gpus() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(SMALL))
    submit(grid, 3)
    (line,) = demand_view(grid.scheduler.state).demands
    assert (line.needs, line.tasks, line.workers) == ({GPU: 1}, 2, 1)
    grid.ask(LimitChanged("matlab", "", 0))
    submit(grid, needs={"matlab": 1})
    assert sum(line.tasks for line in demand_view(grid.scheduler.state).demands) == 2, "no worker would help"


def test_limit_and_need_cannot_be_named_gpu() -> None:
    reply = Grid().ask(LimitChanged(GPU, "", 4))
    assert isinstance(reply, Declined)
    assert "workers' GPUs" in reply.message
    with pytest.raises(ValueError, match="give gpus = 2"):
        spec(requires={"needs": {GPU: 2}})
    with pytest.raises(ValueError, match="give gpus, too"):
        spec(requires={"gpu_model": "A100"})


GPUS = (SMALL, LARGE, OLD)
kinds = st.sampled_from([{}, {"gpus": 2}, {"gpu_model": "A2000"}, {"gpu_capability": "8.0"}, {"gpus": 0}])
parts = st.sampled_from([{"gpus": 0.5}, {"gpus": 0.25}, {"gpus": 0.75, "gpu_model": "1080"}])
withheld = st.sets(st.sampled_from([gpu.id for gpu in GPUS]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4), st.one_of(kinds, parts)),
        st.tuples(st.just("withhold"), st.sampled_from(["ant", "bee"]), withheld),
        *VERBS,
    ),
    max_size=30,
)


def test_gpu_that_two_computers_offer_is_used_on_the_first() -> None:
    grid = Grid(lease_s=20.0)
    for name in ("ant", "bee"):
        grid.join(name, replace(with_gpus(SMALL), machine=f"machine of {name}"))
    grid.join("cow", replace(with_gpus(LARGE), machine="machine of cow"))
    job = submit(grid, 4)
    assert sorted(ids_of(grid, job)) == [LARGE.id, SMALL.id]
    assert grid.running("ant")
    counts = grid.scheduler.state.own(CountedUnits)
    assert counts.claimed_elsewhere("bee") == {SMALL.id: "worker ant, on another computer, offers it, too"}
    assert "offers it, too" in explain_job(grid.scheduler, job).sentence
    grid.leave("ant")
    assert counts.claimed_elsewhere("bee") == {}
    grid.now += 5.0
    grid.report("bee")
    assert not grid.running("bee"), "ant is silent, and its task may still have the GPU"
    grid.join("ant")
    grid.end(*grid.running("ant"))
    assert [*grid.running("ant")], "it joined the grid first"
    assert not grid.running("bee")


class GpuLife(Life):
    """Two agents of one computer share two GPUs, and one of them offers a third. Tasks may share two of the three."""

    def workers_join(self) -> None:
        self.grid.join("ant", with_gpus(SMALL, replace(LARGE, shares=2), replace(OLD, shares=4)))
        self.grid.join("bee", with_gpus(SMALL, replace(LARGE, shares=2)))

    def submit(self, count: int, requires: dict[str, Any]) -> None:
        self.jobs.append(submit(self.grid, count, **requires))

    def withhold(self, name: str, ids: set[str]) -> None:
        if name not in self.silent:
            self.grid.agents[name].withheld_gpus = tuple(WithheldGpu(one, "in use") for one in sorted(ids))
            self.grid.report(name)

    def check_starts(self, before: set[AttemptId]) -> None:
        """Assert that each start has GPUs of its worker that were offered, and that no GPU is given twice."""
        for attempt in self.grid.store.attempts.keys() - before:
            row = self.grid.store.attempts[attempt]
            requires, given = self.grid.store.jobs[attempt.job].spec.requires, row.gpus or ()
            offered = {gpu.id: gpu for gpu in self.grid.agents[row.worker].facts.resources[0].gpus}
            away = {gpu.id for gpu in self.grid.agents[row.worker].withheld_gpus}
            assert len(set(given) - away) == requires.gpu_count
            assert all(requires.gpu_kind.includes(offered[one]) for one in given)
        alive = Counter[str]()
        for attempt, gpus in held(self.grid).items():
            part = self.grid.store.jobs[attempt.job].spec.requires.gpu_kind.part
            alive.update(dict.fromkeys(gpus, part))
        assert max(alive.values(), default=0) <= WHOLE_GPU, "tasks have more than one GPU"


@settings(deadline=None)
@given(steps=steps, policy=st.sampled_from(POLICIES))
def test_random_lives_never_give_one_gpu_to_two_tasks_and_run_everything(steps: list[Any], policy: str) -> None:
    life = GpuLife(policy)
    life.play(steps)
    life.join()
    for name in ("ant", "bee"):
        life.withhold(name, set())
    life.run_everything()


def test_tasks_share_a_gpu_whose_worker_allows_it() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(replace(SMALL, shares=2), LARGE))
    halves = submit(grid, 3, gpus=0.5)
    assert ids_of(grid, halves) == ["GPU-small"] * 2
    whole = submit(grid, 2)
    assert ids_of(grid, whole) == ["GPU-large"]
    counts = grid.scheduler.state.own(CountedUnits)
    assert counts.in_use("ant", GPU) == 2
    for attempt in [one for one in held(grid) if one.job == halves]:
        grid.end(attempt)
    assert sorted(ids_of(grid, halves) + ids_of(grid, whole)) == ["GPU-large", "GPU-small"]


def test_part_of_a_gpu_goes_to_the_one_in_use_so_that_others_stay_whole() -> None:
    grid = Grid()
    grid.join("ant", with_gpus(replace(OLD, shares=4), replace(SMALL, shares=4)))
    assert ids_of(grid, submit(grid, gpus=0.25, gpu_model="A2000")) == ["GPU-small"]
    assert ids_of(grid, submit(grid, 2, gpus=0.33)) == ["GPU-small", "GPU-small"]
    assert ids_of(grid, submit(grid, gpus=0.25)) == ["GPU-old"]


@pytest.mark.parametrize("gpus", [0.2, 0.49])
def test_part_that_is_smaller_than_a_share_is_not_given(gpus: float) -> None:
    grid = Grid()
    grid.join("ant", with_gpus(replace(SMALL, shares=2)))
    reply = grid.ask(JobSubmitted("ann", spec(requires={"gpus": gpus})))
    assert isinstance(reply, Submitted)
    assert [f"{gpus} GPU" in warning for warning in reply.warnings] == [True] * (gpus < 0.49)


@pytest.mark.parametrize("gpus", [1.5, -1, 0.001, 65])
def test_number_of_gpus_is_whole_or_a_part_of_one(gpus: float) -> None:
    with pytest.raises(ValueError, match="gpus"):
        spec(requires={"gpus": gpus})


@pytest.mark.parametrize(("shares", "gpus"), [(10, 0.09), (64, 0.01), (3, 0.33)])
def test_gpu_has_at_most_as_many_tasks_as_its_worker_allows(shares: int, gpus: float) -> None:
    grid = Grid(prefetch_s=0.0)
    grid.join("ant", with_gpus(replace(SMALL, shares=shares), slots=100))
    job = submit(grid, 100, gpus=gpus)
    assert len(ids_of(grid, job)) == shares
    grid.end(next(iter(held(grid))))
    assert len(ids_of(grid, job)) == shares
