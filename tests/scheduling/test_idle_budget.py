"""A job that makes no progress holds others only for a bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import JobCancelled, JobPaused, JobResumed, JobSubmitted
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.index.job_order import HoldIndex
from loopline_master.core.wings.exemptions.idle_budget import IdleExemptions
from loopline_master.core.wings.exemptions.overdrawn import LOOK_EVERY_S, first_holders
from loopline_shared.model import AttemptId, JobState, Outcome, TaskId
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import START, Grid, facts, spec

BUDGET_S = 300.0


def hostile_grid(single: str = "hold") -> tuple[Grid, int, int]:
    """X keeps the only slot with label a forever; Y, which claims a tiny size, needs that label and waits."""
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1, single_task_order=single)
    grid.join("ant", facts(1, labels=["a"]))
    grid.join("bee", facts(1))
    x = grid.submit(1, requires={"labels": ["a"]})
    y = grid.submit(1, 1e-6, requires={"labels": ["a"]})
    assert grid.running("ant") == [AttemptId(x, 1, 1)]
    return grid, x, y


def live(grid: Grid, seconds: float) -> None:
    """Let workers report, and wake the scheduler when it asked to be."""
    until = grid.now + seconds
    while grid.now < until:
        grid.now = min(until, grid.scheduler.wake_at or until)
        for name in grid.agents:
            grid.report(name)


@pytest.mark.parametrize("single", ["hold", "deliver"])
def test_job_waiting_for_a_busy_worker_stops_holding_others(single: str) -> None:
    grid, _, y = hostile_grid(single)
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0))).job  # type: ignore[union-attr]
    if single == "deliver":
        grid.end(AttemptId(later, 1, 1))
    live(grid, LOOK_EVERY_S)
    assert grid.job(y).idle_s <= LOOK_EVERY_S, "not for the time before it held anybody"
    live(grid, BUDGET_S - 2 * LOOK_EVERY_S)
    assert not grid.job(y).stalled
    assert grid.job(later).state is not JobState.SUCCEEDED
    live(grid, 4 * LOOK_EVERY_S)
    assert grid.job(y).stalled
    if single == "hold":
        grid.end(AttemptId(later, 1, 1))
    assert grid.job(later).state is JobState.SUCCEEDED
    assert [(one.job, one.reason) for one in grid.store.exemptions.values()] == [(y, "stalled")]
    assert not grid.store.passings
    explained = explain_job(grid.scheduler, y)
    assert explained is not None
    assert "without progress while slots were free for them" in explained.sentence


def test_job_in_the_delay_of_a_failed_task_stops_holding_others() -> None:
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(1))
    job = grid.submit(1, 1.0, retry_delay_s=80_000.0)
    grid.end(AttemptId(job, 1, 1), Outcome.FAILED)
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0))).job  # type: ignore[union-attr]
    live(grid, BUDGET_S - 2 * LOOK_EVERY_S)
    assert not grid.running("ant"), "the order holds while the budget lasts"
    live(grid, 4 * LOOK_EVERY_S)
    assert grid.running("ant") == [AttemptId(later, 1, 1)]


def test_idle_budget_is_not_charged_while_no_slot_is_free_for_others() -> None:
    grid, _, y = hostile_grid()
    grid.ask(JobSubmitted("stranger", spec(2, 5.0)))
    assert len(grid.running("bee")) == 1, "only its last task is held"
    live(grid, 3 * BUDGET_S)
    assert not grid.job(y).stalled
    assert grid.job(y).idle_s == 0


def test_stalled_job_holds_others_again_after_progress() -> None:
    grid, x, y = hostile_grid()
    later = grid.ask(JobSubmitted("stranger", spec(3, 5.0))).job  # type: ignore[union-attr]
    grid.end(AttemptId(later, 1, 1))
    grid.end(AttemptId(later, 2, 1))
    live(grid, BUDGET_S + 2 * LOOK_EVERY_S)
    assert grid.job(y).stalled
    another = grid.ask(JobSubmitted("stranger", spec(1, 7.0))).job  # type: ignore[union-attr]
    grid.end(AttemptId(x, 1, 1))
    assert grid.running("ant") == [AttemptId(y, 1, 1)]
    live(grid, 3 * LOOK_EVERY_S)
    assert not grid.job(y).stalled
    assert grid.job(another).state is not JobState.SUCCEEDED
    grid.restart()
    assert not grid.job(y).stalled


def test_stalled_job_can_be_cancelled_and_forgotten() -> None:
    grid, _, y = hostile_grid()
    grid.ask(JobSubmitted("stranger", spec(1, 5.0)))
    live(grid, BUDGET_S + 2 * LOOK_EVERY_S)
    assert grid.job(y).stalled
    grid.ask(JobCancelled(y))
    grid.report("ant")
    assert y not in grid.scheduler.state.jobs
    wing = grid.scheduler.state.wings[IdleExemptions]
    assert not wing.workers_to_hear(grid.now + LOOK_EVERY_S)
    assert wing.due_at() is None
    live(grid, 2 * LOOK_EVERY_S)


def test_idle_budget_is_not_charged_while_the_job_computes() -> None:
    """The only task takes far longer than the budget, beside a free slot."""
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(1))
    grid.join("bee", facts(1))
    honest = grid.submit(1, 20 * BUDGET_S)
    grid.submit(1, 30 * BUDGET_S)
    live(grid, 10 * BUDGET_S)
    assert grid.job(honest).idle_s == 0
    assert not grid.job(honest).stalled


def test_budget_is_charged_though_the_free_slot_is_filled_twice_a_minute() -> None:
    """A check sees only one moment: its time cannot be foreseen."""
    grid, x, y = hostile_grid()
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0))).job  # type: ignore[union-attr]
    while not grid.attempts_of(TaskId(later, 1)):
        assert grid.now < START + 5 * BUDGET_S
        live(grid, LOOK_EVERY_S - 1.0)
        filler = grid.submit(1, session="s")
        live(grid, 1.0)
        if AttemptId(filler, 1, 1) in grid.running("bee"):
            grid.end(AttemptId(filler, 1, 1))
    assert grid.job(y).stalled
    assert grid.running("ant") == [AttemptId(x, 1, 1)]


def test_budget_is_charged_for_a_slot_behind_many_others() -> None:
    """Forty idle workers come first, but cannot run the held job."""
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(1, labels=["a"]))
    grid.join("bee", facts(1, labels=["b"]))
    for number in range(40):
        grid.join(f"cow{number}", facts(4))
    grid.submit(1, requires={"labels": ["a"]})
    grid.submit(1, 1e-6, requires={"labels": ["a"]})
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0, {"labels": ["b"]}))).job  # type: ignore[union-attr]
    live(grid, BUDGET_S + 3 * LOOK_EVERY_S)
    assert grid.running("bee") == [AttemptId(later, 1, 1)]


def test_gang_that_lacks_a_worker_is_charged_though_others_are_free() -> None:
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(1, labels=["a"], gangs=True))
    grid.join("bee", facts(1, labels=["a"], gangs=True))
    grid.submit(1, requires={"labels": ["a"]})
    grid.submit(1, 1e-6, nodes=2, requires={"labels": ["a"]})
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0))).job  # type: ignore[union-attr]
    live(grid, BUDGET_S + 3 * LOOK_EVERY_S)
    assert grid.attempts_of(TaskId(later, 1)), "one of two free workers is not enough for the gang"


def test_many_held_jobs_are_checked_with_few_queries() -> None:
    """Each is held by all before it; the first of these is found at once."""
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(50))
    grid.step(*[JobSubmitted("user", spec(2, 5.0)) for _ in range(40)])
    index, asked = grid.scheduler.state.index, []
    assert len(index.blockers) == 39
    with pytest.MonkeyPatch.context() as patched:
        first = HoldIndex.first
        patched.setattr(HoldIndex, "first", lambda *of: asked.append(of) or first(*of))
        holders = first_holders(grid.scheduler.state)
    assert [len(held) for held in holders.values()] == [39]
    assert len(asked) == 2 * 39


@settings(PATIENT, max_examples=tried(15))
@given(
    sizes=st.lists(st.sampled_from([1e-6, 1.0, 30.0, 400.0, 900.0]), min_size=1, max_size=4),
    cancels=st.lists(st.integers(0, 20), max_size=3),
)
def test_wait_behind_idle_jobs_is_bounded_by_the_sum_of_their_budgets(sizes: list[float], cancels: list[int]) -> None:
    """Whether the jobs that wait for a busy worker were submitted together or one after another."""
    grid, _, _ = hostile_grid()
    for size in sizes:
        grid.submit(1, size, requires={"labels": ["a"]})
    stranger = grid.ask(JobSubmitted("stranger", spec(1, 1e3))).job  # type: ignore[union-attr]
    budgets_s = BUDGET_S + sum(max(BUDGET_S, size) for size in sizes)
    for _ in cancels:
        live(grid, LOOK_EVERY_S)
    live(grid, budgets_s + (3 + len(sizes)) * LOOK_EVERY_S)
    grid.end(AttemptId(stranger, 1, 1))
    assert grid.job(stranger).state is JobState.SUCCEEDED, f"held for {grid.now - START:.0f} s"
    assert not grid.store.passings


TRICKS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([10.0, 100.0, 700.0])),
    st.tuples(st.just("wait"), st.sampled_from([10.0, 100.0, 700.0])),
    st.tuples(st.just("end"), st.sampled_from([0.01, 20.0, 300.0])),
    st.tuples(st.just("fail"), st.sampled_from([0.01, 20.0, 300.0])),
    st.tuples(st.just("lose"), st.just(0.0)),
    st.tuples(st.just("pause"), st.integers(0, 3)),
    st.tuples(st.just("resume"), st.integers(0, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 3)),
    st.tuples(st.just("fill"), st.just(0.0)),
)


@settings(PATIENT, max_examples=tried(30))
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from([1e-6, 1.0, 30.0, 400.0]), st.integers(1, 3), st.sampled_from([None, 100.0, 8e4])),
        min_size=1,
        max_size=4,
    ),
    tricks=st.lists(TRICKS, max_size=25),
)
def test_strangers_wait_is_bounded_whatever_the_holders_do(
    jobs: list[tuple[float, int, float | None]], tricks: list[tuple[str, float]]
) -> None:
    """The bound of docs/design/hold.md, at a speed of 1: sum of the budgets and of 2 x overdrawn_after x size."""
    grid = Grid(
        idle_budget_s=BUDGET_S, overdrawn_after=3.0, lease_s=200.0, max_replicas=1, max_attempts=3,
        single_task_order="deliver",
    )  # fmt: skip
    grid.join("ant", facts(1, labels=["a"]))
    grid.join("bee", facts(1, labels=["b"]))
    grid.submit(1, requires={"labels": ["a"]})
    holders = [
        grid.submit(tasks, size, requires={"labels": ["a"]}, retry_delay_s=delay_s) for size, tasks, delay_s in jobs
    ]
    stranger = grid.ask(JobSubmitted("stranger", spec(2, 1e3, {"labels": ["b"]}))).job  # type: ignore[union-attr]
    grid.end(AttemptId(stranger, 1, 1))
    waited_s = 0.0

    def wait(seconds: float) -> None:
        nonlocal waited_s
        for _ in range(int(seconds / 10.0)):
            is_held = not grid.running("bee")
            live(grid, 10.0)
            waited_s += 10.0 * is_held

    for kind, what in tricks:
        play(grid, holders, kind, what)
        wait(what if kind == "wait" else 10.0)
    sizes = [size for size, _, _ in jobs]
    most_s = sum(max(BUDGET_S, size) for size in sizes) + 2 * 3.0 * sum(sizes)
    most_s += (2 + len(tricks) + 2 * len(sizes)) * LOOK_EVERY_S
    while not grid.running("bee") and waited_s <= most_s:
        wait(100.0)
    assert grid.running("bee") == [AttemptId(stranger, 2, 1)], f"held for {waited_s:.0f} s of at most {most_s:.0f}"
    assert not grid.store.passings


def play(grid: Grid, holders: list[int], kind: str, what: float) -> None:
    """One trick of the holders' user."""
    match kind:
        case "end" | "fail" if grid.running("ant"):
            outcome = Outcome.SUCCEEDED if kind == "end" else Outcome.FAILED
            grid.end(grid.running("ant")[0], outcome, wall_s=what, cpu_s=what)
        case "lose":
            grid.reboot("ant")
            grid.join("ant")
        case "pause" | "resume" | "cancel":
            event = {"pause": JobPaused, "resume": JobResumed, "cancel": JobCancelled}[kind]
            grid.step(event(holders[int(what) % len(holders)]))
        case "fill":
            grid.submit(1, requires={"labels": ["a"]})
