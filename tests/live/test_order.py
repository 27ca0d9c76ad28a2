"""The order guarantee and replicas on a real grid."""

from __future__ import annotations

import signal

from loopline_shared.model import JobState, TaskId
from tests.live.grid import Grid, wait_for


async def test_later_job_of_equal_size_is_held_by_the_earlier_one(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    gate = grid.gate()
    first = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=2, size=10, max_replicas=1)
    await grid.attempts_when("the first to run", first, lambda all_: len(all_) == 2)
    await grid.start_worker("bee", slots=2)
    second = await grid.submit("echo {i}", tasks=3, size=10)
    client = grid.client()

    async def is_held() -> bool:
        view = await client.job(second)
        return view.held and view.tasks.succeeded == 2

    await wait_for("the second job to be held", is_held)
    explanation = await client.explain(second)
    assert f"job {first} (size 10 s) entered the grid before it and is not larger" in explanation.sentence
    assert (await client.explain(TaskId(second, 3))).reasons[0].code == "held"
    gate.open()
    one, two = await grid.ended(first), await grid.ended(second)
    assert (one.finished_at or 0) <= (two.finished_at or 0)
    assert (await client.passing()).completions == 2


async def test_smaller_job_may_pass(grid: Grid) -> None:
    await grid.start_worker("ant", slots=1)
    await grid.start_worker("bee", slots=1)
    gate = grid.gate()
    large = await grid.submit(f"{gate.wait}", size=100, max_replicas=1)
    small = await grid.submit("echo {i}", tasks=3, size=1)
    assert (await grid.ended(small)).state is JobState.SUCCEEDED
    assert (await grid.job(large)).state is JobState.RUNNING
    gate.open()
    await grid.ended(large)


async def test_paused_job_holds_no_other_and_its_exemption_is_recorded(grid: Grid) -> None:
    await grid.start_worker("ant", slots=1)
    client = grid.client()
    gate = grid.gate()
    first = await grid.submit(f"{gate.wait}", tasks=2, size=10, max_replicas=1)
    await grid.attempts_when("it to run", first, lambda all_: any(a.started_at for a in all_))
    second = await grid.submit("echo {i}", size=10)
    await client.pause(first)
    await grid.start_worker("bee", slots=1)
    await grid.ended(second)
    await client.resume(first)
    gate.open()
    await grid.ended(first)
    report = await client.passing()
    assert (report.passings, report.excused) == (0, {"paused": 1})


async def test_job_on_a_silent_worker_keeps_its_place_in_the_order(grid: Grid) -> None:
    """Its agent hangs soon after the job's start: ten times the job's size pass, but no work is measured."""
    await grid.start_worker("ant", slots=2)
    gate, client = grid.gate(), grid.client()
    size = 0.8
    first = await grid.submit(f"{gate.wait}", tasks=2, size=size, max_replicas=1)
    await grid.attempts_when("it to run", first, lambda all_: sum(bool(a.started_at) for a in all_) == 2)
    grid.workers["ant"].send_signal(signal.SIGSTOP)
    await grid.start_worker("bee", slots=2)
    await grid.connected("bee")

    async def is_silent() -> bool:
        ant, bee = [await client.worker(name) for name in ("ant", "bee")]
        return ((bee.reported_at or 0.0) - (ant.reported_at or 0.0)) * 2 * min(1.0, ant.speed) > 12 * size

    await wait_for("ten times its size to pass", is_silent)
    second = await grid.submit("echo {i}", tasks=2, size=size)

    async def is_held() -> bool:
        view = await client.job(second)
        return view.held and view.tasks.succeeded == 1

    await wait_for("the equal job to be held", is_held)
    assert not (await client.job(first)).overdrawn
    gate.open()
    grid.workers["ant"].send_signal(signal.SIGCONT)
    one, two = await grid.ended(first), await grid.ended(second)
    assert (one.finished_at or 0) <= (two.finished_at or 0)
    report = await client.passing()
    assert (report.completions, report.passings, report.excused) == (2, 0, {})


async def test_losing_replica_dies_with_its_process_tree(grid: Grid) -> None:
    """The loser has children, one of them a daemon in its own session that ignores signals."""
    await grid.start_worker("ant")
    await grid.start_worker("bee")
    await grid.connected("ant", "bee")
    daemon = "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &"
    gate = grid.gate("open-$LOOPLINE_WORKER")
    job = await grid.submit(f"{daemon} sleep 1000 & {gate.wait}; echo $LOOPLINE_WORKER")
    racing = await grid.attempts_when(
        "two replicas", job, lambda all_: len(all_) == 2 and all(a.state == "running" for a in all_)
    )
    loser, winner = racing
    assert (loser.replica, winner.replica) == (False, True)
    grid.gate(f"open-{winner.worker}").open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    await grid.no_processes()
    ended = await grid.attempts_when("the loser to end", job, lambda all_: all(a.ended_at for a in all_))
    assert {(a.worker, a.state.value, a.accepted) for a in ended} == {
        (loser.worker, "cancelled", False),
        (winner.worker, "succeeded", True),
    }
