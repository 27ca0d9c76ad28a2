"""Tasks that continue from checkpoints on a real grid: every step is done in order, and the output has no seam."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from loopline.transfer.checkpoints import fetch
from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState, TaskId
from loopline_shared.rest.bodies import CheckpointView
from tests.campaign import tried
from tests.live.grid import SHORTEST_LEASE_S, Grid, wait_for
from tests.live.proxy import Proxy
from tests.live.test_functions import executor
from tests.live.test_owner import OWNER
from tests.sandboxes import without_bubblewrap
from tests.worker.presence.witnesses import move_mouse, moving_mouse, x_server

STEPS = 20
COUNTS = """
state=$LOOPLINE_CHECKPOINT/state step=0
if [ -e "$state" ]; then . "$state"; fi
while [ "$step" -lt STEPS ] || [ ! -e GATE ]; do
    sleep 0.1
    step=$((step + 1))
    echo "step $step"
    echo "$LOOPLINE_ATTEMPT $step" >> LOG
    echo "step=$step" > "$state.new"
    mv "$state.new" "$state"
done
"""
"""It counts on until the test opens the gate."""


def counting(grid: Grid, steps: int = STEPS) -> str:
    """Return the program; only without a sandbox it keeps a log of its steps."""
    log = grid.folder / "steps" if grid.sandbox == "off" else "/dev/null"
    (grid.folder / "gates").mkdir(exist_ok=True)
    gate = grid.folder / "gates" / "gate"
    return COUNTS.replace("STEPS", str(steps)).replace("GATE", str(gate)).replace("LOG", str(log))


async def start_worker(grid: Grid, name: str) -> None:
    """Start a worker whose tasks see the gate."""
    await grid.start_worker(name, settings={"LOOPLINE_SANDBOX_SHOWS": str(grid.folder / "gates")})


async def submitted(grid: Grid) -> int:
    return await grid.submit(counting(grid), checkpoint=CheckpointSpec(every_s=1), max_replicas=1)


async def steps_at_the_end(grid: Grid, job: int) -> int:
    """Open the gate. Return how many steps the output has, which are all, in order."""
    (grid.folder / "gates" / "gate").touch()
    assert (await grid.ended(job, 120)).state is JobState.SUCCEEDED
    (result,) = [result async for result in grid.client().results(job)]
    steps = result.stdout.count("\n")
    assert result.stdout == output_of(steps)
    return steps


def output_of(steps: int) -> str:
    return "".join(f"step {step}\n" for step in range(1, steps + 1))


async def newer(grid: Grid, job: int, than_s: float) -> CheckpointView:
    """Return the newest checkpoint of the only task, once it contains more run time."""

    async def ask() -> CheckpointView | None:
        found = await grid.client().checkpoints(TaskId(job, 1))
        return found[0] if found and found[0].wall_s > than_s else None

    return await wait_for("a newer checkpoint", ask, 120)


def executed(folder: Path) -> list[int]:
    return [int(line.split()[1]) for line in (folder / "steps").read_text().splitlines()]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sandbox", ["off", *([] if without_bubblewrap() else ["bubblewrap"])])
async def test_task_continues_after_each_kill_of_its_agent(grid: Grid, sandbox: str) -> None:
    grid.sandbox = sandbox
    script = counting(grid)
    await start_worker(grid, "ant")
    job = await grid.submit(script, checkpoint=CheckpointSpec(every_s=1), max_replicas=1)
    had_s = 0.0
    for _ in range(tried(2, 5)):
        had_s = (await newer(grid, job, had_s)).wall_s
        await grid.kill_worker("ant")
        await grid.no_processes()
        await start_worker(grid, "ant")
    steps = await steps_at_the_end(grid, job)
    resumed = [attempt.resumed.times for attempt in await grid.attempts(job) if attempt.resumed]
    assert resumed == list(range(1, len(resumed) + 1))
    if sandbox == "off":
        assert set(executed(grid.folder)) >= set(range(1, steps + 1)), (
            "the last ones may be of an attempt that was killed"
        )


def count_and_fail(gates: str) -> int:
    """Count until gate 2 is open; raise when gate 1 is, unless this attempt continues from a checkpoint."""
    import os
    import time

    from loopline import checkpoint

    step: int = checkpoint.load(0)
    while not os.path.exists(f"{gates}/2"):  # noqa: PTH110
        time.sleep(0.1)  # the work
        step += 1
        print("step", step)
        checkpoint.save(step)
        if os.path.exists(f"{gates}/1") and os.environ["LOOPLINE_RESUMED"] == "0":  # noqa: PTH110
            raise RuntimeError("try again")
    return step


@pytest.mark.timeout(600)
async def test_function_continues_after_its_exception_and_a_kill_of_its_agent(grid: Grid) -> None:
    gates = grid.folder / "gates"
    gates.mkdir()
    await start_worker(grid, "ant")
    saving: dict[str, Any] = {"checkpoint": {"every_s": 1}, "max_attempts": 2, "max_replicas": 1}
    async with executor(grid, **saving) as pool:
        future = await asyncio.to_thread(pool.submit, count_and_fail, str(gates))

        async def jobs() -> list[int]:
            return pool.jobs

        (job,) = await wait_for("the job", jobs)
        await newer(grid, job, 0.0)
        (gates / "1").touch()
        await grid.attempts_when("another attempt", job, lambda all_: len(all_) == 2)
        last = max(one.wall_s for one in await grid.client().checkpoints(TaskId(job, 1)))
        await newer(grid, job, last)
        await grid.kill_worker("ant")
        await start_worker(grid, "ant")
        await grid.attempts_when("a third attempt", job, lambda all_: len(all_) == 3)
        (gates / "2").touch()
        steps = await asyncio.wait_for(asyncio.wrap_future(future), 120)
    (result,) = [result async for result in grid.client().results(job)]
    assert result.stdout == output_of(steps)
    resumed = [attempt.resumed and attempt.resumed.times for attempt in await grid.attempts(job)]
    assert resumed == [None, 1, 2]


SAVES_STEPS = """
cd "$LOOPLINE_CHECKPOINT"
step=$(ls | sed s/step-// | sort -n | tail -n 1) step=${step:-0}
echo "$LOOPLINE_ATTEMPT $step" >> BEGUN
while [ "$step" -lt STEPS ] || [ ! -e GATE ]; do
    sleep 0.4
    step=$((step + 1))
    echo "step $step"
    mkdir "step-$step.new"
    mv "step-$step.new" "step-$step"
    rm -rf "step-$((step - 1))"
done
"""


@pytest.mark.timeout(600)
async def test_gang_continues_from_one_step_after_the_kill_of_a_member(grid: Grid) -> None:
    begun, gate = grid.folder / "begun", grid.folder / "gate"
    script = SAVES_STEPS.replace("STEPS", str(STEPS)).replace("BEGUN", str(begun)).replace("GATE", str(gate))
    await grid.start_worker("ant")
    await grid.start_worker("bee")
    await grid.connected("ant", "bee")
    job = await grid.submit(script, nodes=2, checkpoint=CheckpointSpec(every_s=1))

    async def is_saved() -> bool:
        found = await grid.client().checkpoints(TaskId(job, 1))
        steps = {(one.attempt.number, one.step) for one in found if one.step}
        return any((1, step) in steps and (2, step) in steps for _, step in steps)

    await wait_for("a step that both have saved", is_saved, 120)
    await grid.kill_worker("ant")
    await start_worker(grid, "ant")
    await grid.attempts_when("another launch", job, lambda all_: len(all_) == 4 and all(a.started_at for a in all_))
    gate.touch()
    assert (await grid.ended(job, 120)).state is JobState.SUCCEEDED
    steps = dict(line.split() for line in begun.read_text().splitlines())
    assert steps[f"{job}.1.3"] == steps[f"{job}.1.4"] != "0"
    (result,) = [result async for result in grid.client().results(job)]
    assert result.stdout == output_of(result.stdout.count("\n"))


async def test_task_continues_on_another_worker_after_a_drain(grid: Grid) -> None:
    await grid.start_worker("ant")
    job = await submitted(grid)
    await newer(grid, job, 0.0)
    fetched = await fetch(grid.client(), TaskId(job, 1), grid.folder)
    step = int((grid.folder / "state").read_text().removeprefix("step="))
    assert (fetched["files"], (grid.folder / ".stdout").read_text()) == (1, output_of(step))
    await grid.start_worker("bee")
    await grid.connected("bee")
    await grid.stop_worker("ant")
    await steps_at_the_end(grid, job)
    last = (await grid.attempts(job))[-1]
    assert (last.worker, last.resumed and last.resumed.worker) == ("bee", "ant")


@pytest.mark.timeout(600)
async def test_replica_continues_where_the_owner_came_back(grid: Grid) -> None:
    """The frozen task's checkpoint reaches the master at once, long before the next upload is due."""
    with x_server() as display:
        await grid.start_worker("ant", owner=OWNER | display | {"LOOPLINE_GRACE_S": "600"})
        job = await grid.submit(counting(grid), checkpoint=CheckpointSpec(every_s=1))
        await newer(grid, job, (await newer(grid, job, 0.0)).wall_s)
        await grid.start_worker("bee")
        await grid.connected("ant", "bee")
        with moving_mouse(display):
            await grid.attempts_when(
                "a replica", job, lambda all_: any(a.worker == "bee" and a.started_at for a in all_)
            )
            await steps_at_the_end(grid, job)
    attempts = await grid.attempts_when("the loser to end", job, lambda all_: all(a.ended_at for a in all_))
    won = next(attempt for attempt in attempts if attempt.accepted)
    assert (won.worker, won.replica, won.resumed and won.resumed.worker) == ("bee", True, "ant")


async def test_task_that_ends_to_be_continued_uses_no_attempt(grid: Grid) -> None:
    await grid.start_worker("ant")
    log = str(grid.folder / "steps")
    quits = counting(grid, 80).replace("sleep 0.1", "")
    quits = quits.replace(f">> {log}", "> /dev/null").replace("done\n", "[ $((step % 30)) -gt 0 ] || exit 85\ndone\n")
    (grid.folder / "gates" / "gate").touch()
    job = await grid.submit(quits, checkpoint=CheckpointSpec(exit_code=85), max_attempts=1)
    assert await steps_at_the_end(grid, job) == 80
    assert len(await grid.attempts(job)) == 3


@pytest.mark.timeout(600)
async def test_no_acknowledged_checkpoint_is_lost_when_anything_is_killed(grid: Grid) -> None:
    """Master and worker are killed at random; no attempt starts from less than the newest checkpoint."""
    await grid.start_worker("ant")
    job = await submitted(grid)
    choice, had_s = random.Random(46), 0.0
    for _ in range(tried(3, 12)):
        had_s = (await newer(grid, job, had_s)).wall_s
        if choice.random() < 0.5:
            await grid.kill_master()
            await grid.start_master()
            await grid.connected("ant")
        else:
            await grid.kill_worker("ant")
            await grid.start_worker("ant")
    steps = await steps_at_the_end(grid, job)
    assert set(executed(grid.folder)) >= set(range(1, steps + 1)), (
        "the last ones may be of an attempt that was killed"
    )


HANGS, CABLE = "SIGSTOP past the lease", "a cable cut past the lease"


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by", ["kill -9", "SIGTERM", HANGS, CABLE, "the owner", "the master's kill"])
@pytest.mark.parametrize("sandbox", ["off", *([] if without_bubblewrap() else ["bubblewrap"])])
async def test_minute_of_work_ends_although_it_is_disturbed_every_12_seconds(
    forgetful_grid: Grid, sandbox: str, by: str
) -> None:
    """At most 1.4 times its work is executed; without checkpoints it would never end."""
    grid = forgetful_grid
    grid.sandbox = sandbox
    cables = {name: Proxy(grid.port) for name in ("ant", "bee")}
    with x_server() as one, x_server() as other:
        displays = {"ant": one, "bee": other}
        for name, display in displays.items():
            url = await cables[name].start() if by == CABLE else None
            await grid.start_worker(name, owner=OWNER | display if by == "the owner" else None, url=url)
        try:
            await _disturbed(grid, by, displays, cables)
        finally:
            if by == CABLE:
                for cable in cables.values():
                    await cable.stop()


async def _disturbed(grid: Grid, by: str, displays: dict[str, dict[str, str]], cables: dict[str, Proxy]) -> None:
    script = counting(grid, 60).replace("sleep 0.1", "sleep 1").replace(f"|| [ ! -e {grid.folder}/gates/gate ]", "")
    job = await grid.submit(script, checkpoint=CheckpointSpec(every_s=1), max_replicas=1)
    disturbances = 0
    while not (await grid.job(job)).finished_at:
        await asyncio.sleep(12)  # the time between two disturbances, as the promise has it
        running = [one for one in await grid.attempts(job) if one.state in ("running", "dispatched")]
        if running:
            if by == "the owner":
                move_mouse(displays[running[-1].worker], 25)
            elif by == CABLE:
                cable = cables[running[-1].worker]
                cable.fall_silent()
                await asyncio.sleep(1.5 * SHORTEST_LEASE_S)  # the cable is cut for longer than the lease
                cable.mend()
            else:
                await _disturb(grid, running[-1].worker, by)
            disturbances += 1
    assert await steps_at_the_end(grid, job) == 60
    assert disturbances >= 3
    if grid.sandbox == "off":
        assert len(executed(grid.folder)) <= 1.4 * 60


async def _disturb(grid: Grid, name: str, by: str) -> None:
    worker = grid.workers[name]
    if by == "kill -9":
        await grid.kill_worker(name)
        await grid.start_worker(name)
    elif by == "SIGTERM":
        await grid.stop_worker(name)
        await grid.start_worker(name)
    elif by == HANGS:
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.5 * SHORTEST_LEASE_S)  # the agent hangs for longer than its lease
        worker.send_signal(signal.SIGCONT)
    else:
        await grid.kill_master()
        await grid.start_master()


async def test_frozen_task_leaves_its_licence_and_continues_elsewhere(tmp_path: Path) -> None:
    """Another task waits for the only licence, so the worker gives the frozen one back before its own grace ends."""
    grid = Grid(tmp_path)
    try:
        await grid.start_master("--report-every-s", "0.5", "--limit-grace-s", "0")
        await grid.client().set_limit("matlab", 1)
        needs = Requirements(needs={"matlab": 1})
        with x_server() as display:
            shows = {"LOOPLINE_SANDBOX_SHOWS": str(grid.folder / "gates")}
            await grid.start_worker("ant", owner=OWNER | display | {"LOOPLINE_GRACE_S": "6000"}, settings=shows)
            job = await grid.submit(counting(grid), checkpoint=CheckpointSpec(every_s=1), requires=needs)
            await newer(grid, job, 0.0)
            await start_worker(grid, "bee")
            other = await grid.submit("echo done", requires=needs)

            with moving_mouse(display):
                await grid.attempts_when("it to be given back", job, lambda all_: all_[0].ended_at is not None)
            assert await steps_at_the_end(grid, job) >= STEPS
            assert (await grid.ended(other)).state is JobState.SUCCEEDED
            first, second = await grid.attempts(job)
            assert (first.worker, second.worker) == ("ant", "bee")
            assert "others wait for units" in first.reason
            assert second.resumed
    finally:
        await grid.stop()
