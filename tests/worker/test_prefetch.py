"""Tasks prefetched at supervisors: each starts when the previous one has ended, or not at all."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import select
import signal
import sys
import time
from typing import NoReturn

import psutil
import pytest

from loopline_shared.model import Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core import owner as owner_rule
from loopline_worker.core.events import Event, Retracted, Returned
from loopline_worker.core.owner_policy import Decision
from loopline_worker.launch.posix import DurationEstimate
from loopline_worker.supervisor import processes
from loopline_worker.supervisor.orders import Claims, claim
from tests.worker.bench import Bench, processes_of, run_of, until
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, Started, begun, start
from tests.worker.test_owner_monitor import is_stopped

__all__ = ["start"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no supervisors")


@pytest.fixture(autouse=True)
def behind_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every running task as a short one."""
    monkeypatch.setattr(DurationEstimate, "prefetch_depth", lambda estimate: 8)
    monkeypatch.setattr("loopline_worker.launch.posix.SLOW_TASK_S", 3600)


def gated(bench: Bench, task: int, **options: object) -> Run:
    """A task that signals its start, and ends when permitted."""
    begun, go = bench.folder / f"begun-{task}", bench.folder / f"go-{task}"
    return run_of("sh", "-c", f"echo > {begun}; while [ ! -e {go} ]; do sleep 0.01; done", task=task, **options)


def has_begun(bench: Bench, run: Run) -> bool:
    return (bench.folder / f"begun-{run.attempt.task}").exists()


def let(bench: Bench, *runs: Run) -> None:
    for run in runs:
        (bench.folder / f"go-{run.attempt.task}").touch()


async def begins(bench: Bench, *runs: Run) -> None:
    for run in runs:
        bench.runner.start(run)
    await until(lambda: all(has_begun(bench, run) for run in runs))


def held_up(agent: Started, task: int, **options: object) -> Run:
    """``gated``, at an agent."""
    go = agent.folder / f"go-{task}"
    return run_of("sh", "-c", f"echo > begun; while [ ! -e {go} ]; do sleep 0.01; done", task=task, **options)


def let_go(agent: Started, run: Run) -> None:
    (agent.folder / f"go-{run.attempt.task}").touch()


async def one_and_what_follows(
    bench: Bench, *, prefetched: int = 2, supervisors: int = 1
) -> tuple[list[Run], list[Run]]:
    """Return started runs, and the runs prefetched behind them."""
    first = [gated(bench, task) for task in range(1, supervisors + 1)]
    await begins(bench, *first)
    then = [gated(bench, task) for task in range(supervisors + 1, supervisors + 1 + prefetched)]
    for run in then:
        bench.runner.prefetch(run)
    await asyncio.sleep(0)  # it has gone off
    return first, then


def wait_unheard(bench: Bench, run: Run) -> None:
    """Wait until it runs, while the agent processes no events."""
    give_up = time.monotonic() + 60
    while not has_begun(bench, run):
        assert time.monotonic() < give_up
        time.sleep(0.001)


async def test_each_task_starts_when_the_previous_one_has_ended(bench: Bench) -> None:
    (first,), (second, third) = await one_and_what_follows(bench)
    let(bench, second, third)
    assert not has_begun(bench, second)
    let(bench, first)
    for run in (first, second, third):
        assert (await bench.end_of(run)).outcome is Outcome.SUCCEEDED
    assert bench.followed == [(1, 2), (2, 3)]
    assert list(bench.results) == [run.attempt for run in (first, second, third)]


async def test_at_most_as_many_tasks_run_as_there_are_slots(bench: Bench) -> None:
    """Each finds the only lock free, and the file of the previous one removed."""
    lock = bench.folder / "lock"
    runs = [run_of("sh", "-c", f"mkdir {lock} && touch here && rmdir {lock}", task=task) for task in range(1, 60)]
    bench.runner.start(runs[0])
    for started, run in enumerate(runs[1:], 1):
        while not (room := bench.runner.room()) and len(bench.results) < started:
            await asyncio.sleep(0.001)
        (bench.runner.prefetch if room else bench.runner.start)(run)  # all may have ended already
    for run in runs:
        assert (await bench.end_of(run)).outcome is Outcome.SUCCEEDED


async def test_output_of_each_task_is_separate(bench: Bench) -> None:
    first = gated(bench, 1)
    await begins(bench, first)
    runs = [run_of("echo", f"this is {task}", task=task) for task in range(2, 9)]
    for run in runs:
        bench.runner.prefetch(run)
    let(bench, first)
    for run in runs:
        assert (await bench.end_of(run)).stdout.data == f"this is {run.attempt.task}\n".encode()


async def test_time_of_a_task_counts_from_its_own_start(bench: Bench) -> None:
    first, second = gated(bench, 1), run_of("true", task=2, timeout_s=30.0)
    await begins(bench, first)
    before = time.monotonic()
    bench.runner.prefetch(second)
    await asyncio.sleep(0.3)
    let(bench, first)
    assert (await bench.end_of(second)).wall_s < time.monotonic() - before - 0.25
    assert bench.results[first.attempt].wall_s > 0.3


async def test_tasks_are_prefetched_only_behind_short_ones(bench: Bench) -> None:
    first, second = gated(bench, 1), gated(bench, 2)
    await begins(bench, first, second)
    long, short = sorted(bench.launcher._links, key=lambda link: link.started_at)
    assert long.first
    long.first.started_at = -math.inf
    for task in (3, 4):
        bench.runner.prefetch(run_of("true", task=task))
    assert (long.prefetched, short.prefetched) == (0, 2)


async def test_retracted_tasks_do_not_start(bench: Bench) -> None:
    (first,), (second, third) = await one_and_what_follows(bench)
    bench.runner.retract()
    assert bench.returned == [2, 3]
    let(bench, first)
    await bench.end_of(first)
    bench.runner.start(third)  # like any other run
    let(bench, third)
    assert (await bench.end_of(third)).outcome is Outcome.SUCCEEDED
    assert not has_begun(bench, second)


async def test_tasks_behind_a_long_one_are_returned_when_others_end(bench: Bench) -> None:
    (first, second), (third,) = await one_and_what_follows(bench, supervisors=2, prefetched=1)
    link = next(link for link in bench.launcher._links if link.prefetched)
    assert link.first
    link.first.started_at = -math.inf
    let(bench, first if link.first.name == second.attempt else second)
    await until(lambda: bench.returned == [third.attempt.task])


async def test_retracted_tasks_return_in_their_original_order(bench: Bench) -> None:
    _, then = await one_and_what_follows(bench, prefetched=4, supervisors=2)
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.runner, "_post", events.append)
        bench.runner.retract()
    returned, retracted = events
    assert isinstance(returned, Returned), "all in one event"
    assert sorted(returned.attempts) == [run.attempt for run in then]
    assert retracted == Retracted(), "then the retract is known to be complete"


async def test_task_retracted_during_its_start_keeps_its_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor gets the processor in the middle of the retract, as a low-priority process may at any time."""
    first, *then = (run_of("echo", f"this is {task}", task=task) for task in (1, 2, 3))
    await bench.result(run_of("true", task=9))
    (link,) = bench.launcher._links
    os.kill(link.root, signal.SIGSTOP)
    bench.runner.start(first)
    await asyncio.sleep(0)  # its order is sent
    for run in then:
        bench.runner.prefetch(run)
    await asyncio.sleep(0)
    read = os.read

    def read_and_let_it_go_on(file: int, size_bytes: int) -> bytes:
        monkeypatch.setattr(os, "read", read)
        found = read(file, size_bytes)
        os.kill(link.root, signal.SIGCONT)
        while select.select([file], [], [], 0)[0]:  # it reads the rest
            time.sleep(0.001)
        return found

    monkeypatch.setattr(os, "read", read_and_let_it_go_on)
    bench.runner.retract()
    assert (await bench.end_of(first)).stdout.data == b"this is 1\n"
    assert bench.returned == [2, 3]


async def test_supervisor_that_cannot_start_its_next_task_exits(bench: Bench) -> None:
    """It must not wait for an order that was not sent."""
    (first,), _ = await one_and_what_follows(bench, prefetched=0)
    (link,) = bench.launcher._links
    link._claims.offer([999])
    let(bench, first)
    await bench.end_of(first)
    await until(lambda: link not in bench.launcher._links)
    assert (await bench.result(run_of("true", task=2))).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("what", ["freeze", "cancel"])
async def test_freeze_and_cancel_return_the_tasks_behind(bench: Bench, what: str) -> None:
    (first,), _ = await one_and_what_follows(bench)
    getattr(bench.runner, what)(first.attempt)
    assert bench.returned == [2, 3]
    bench.runner.cancel(first.attempt)
    assert (await bench.end_of(first)).outcome is Outcome.CANCELLED
    assert bench.followed == []


async def test_task_cancelled_before_its_turn_never_runs(bench: Bench) -> None:
    (first,), (second, _) = await one_and_what_follows(bench)
    bench.runner.cancel(second.attempt)
    result = await bench.end_of(second)
    assert (result.outcome, result.wall_s, bench.returned) == (Outcome.CANCELLED, 0.0, [3])
    let(bench, first)
    assert (await bench.end_of(first)).outcome is Outcome.SUCCEEDED
    assert not has_begun(bench, second)


async def test_tasks_of_a_killed_supervisor_are_given_back(bench: Bench) -> None:
    """The running task is given back; prefetched ones can start elsewhere."""
    (first,), (second, third) = await one_and_what_follows(bench)
    assert bench.launcher._process
    (supervisor,) = processes.children(bench.launcher._process.pid)
    os.kill(supervisor, signal.SIGKILL)
    assert (await bench.end_of(first)).outcome is Outcome.GIVEN_BACK
    assert bench.returned == [2, 3]
    await until(lambda: not processes_of(bench.folder))
    await begins(bench, second)
    let(bench, second)
    assert (await bench.end_of(second)).outcome is Outcome.SUCCEEDED
    assert not has_begun(bench, third)


async def test_no_prefetched_task_starts_after_the_agent_hangs_up(bench: Bench) -> None:
    """As when the agent is killed: running tasks die, prefetched ones never start."""
    _, (second, _) = await one_and_what_follows(bench)
    assert bench.launcher._process
    (link,) = bench.launcher._links
    link.close()
    launcher = psutil.Process(bench.launcher._process.pid)
    await until(lambda: not launcher.children())
    assert not has_begun(bench, second)
    bench.runner._attempts.clear()  # no agent is left to receive it


# The next task has started, but the agent does not know it yet.


async def test_freeze_reaches_the_successor_of_an_ended_task(bench: Bench) -> None:
    (first,), (second, _) = await one_and_what_follows(bench)
    let(bench, first)
    wait_unheard(bench, second)
    bench.runner.freeze(first.attempt)
    assert bench.returned == [3]
    await until(lambda: bench.followed == [(1, 2)])
    assert bench.runner.held(second.attempt).frozen
    await until(lambda: bench.runner.freeze(second.attempt))
    await until(lambda: all(is_stopped(process) for process in processes_of(bench.folder)))
    let(bench, second)
    bench.runner.thaw(second.attempt)
    assert (await bench.end_of(second)).outcome is Outcome.SUCCEEDED
    assert bench.results[first.attempt].outcome is Outcome.SUCCEEDED


async def test_cancel_of_an_ended_task_does_not_reach_its_successor(bench: Bench) -> None:
    """Neither the ended task nor its running successor is cancelled."""
    (first,), (second, _) = await one_and_what_follows(bench)
    let(bench, first)
    wait_unheard(bench, second)
    bench.runner.cancel(first.attempt)
    await until(lambda: bench.followed == [(1, 2)])
    assert (await bench.end_of(first)).outcome is Outcome.SUCCEEDED
    let(bench, second)
    assert (await bench.end_of(second)).outcome is Outcome.SUCCEEDED


async def test_cancel_of_a_just_started_successor_kills_it(bench: Bench) -> None:
    (first,), (second, third) = await one_and_what_follows(bench)
    let(bench, first)
    wait_unheard(bench, second)
    bench.runner.cancel(second.attempt)
    assert (await bench.end_of(second)).outcome is Outcome.CANCELLED
    assert (await bench.end_of(first)).outcome is Outcome.SUCCEEDED
    assert not has_begun(bench, third)


async def test_close_gives_back_a_just_started_successor(bench: Bench) -> None:
    (first,), (second, _) = await one_and_what_follows(bench)
    let(bench, first)
    wait_unheard(bench, second)
    await bench.runner.close("closing")
    assert bench.results[second.attempt].outcome is Outcome.GIVEN_BACK
    assert processes_of(bench.folder) == []


async def test_each_task_gets_one_result_when_its_supervisor_is_killed(bench: Bench) -> None:
    (first,), (second, _) = await one_and_what_follows(bench)
    let(bench, first)
    wait_unheard(bench, second)
    assert bench.launcher._process
    (supervisor,) = processes.children(bench.launcher._process.pid)
    os.kill(supervisor, signal.SIGKILL)
    assert (await bench.end_of(second)).outcome is Outcome.GIVEN_BACK
    assert first.attempt in bench.results
    assert bench.returned == [3]
    await until(lambda: not bench.runner._attempts)


# With an agent, which knows of slots.


@pytest.mark.parametrize("outputs", [(), ("begun",)])
async def test_free_slot_gets_a_task_prefetched_elsewhere(
    master: SmallMaster, start: Start, outputs: tuple[str, ...]
) -> None:
    """Even if no supervisor has worked in that slot and could report it."""
    agent = start(slots=2)
    first, second, *then = (held_up(agent, task, outputs=outputs if task == 1 else ()) for task in range(1, 5))
    await master.say(first, second)
    await until(lambda: agent.agent.parts.machine.attempts.taken == 2 and agent.agent.parts.runner.room())
    await master.say(*then)
    await until(lambda: agent.agent.parts.machine.inventory().waiting == [run.attempt for run in then])
    let_go(agent, first)
    for run in then:
        let_go(agent, run)
    await master.results_of(*then)
    assert second.attempt not in {result.attempt for result in master.results}


async def test_no_successor_starts_for_an_attempt_given_back_to_the_owner(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = start(slots=2, grace_s=0)
    runs = [held_up(agent, task) for task in range(1, 7)]
    await master.say(*runs[:2])
    await begun(agent, runs[0])
    await begun(agent, runs[1])
    await master.say(*runs[2:])
    await until(lambda: len(agent.agent.parts.machine.inventory().waiting) == 4)
    monkeypatch.setattr(owner_rule, "decide", lambda *_: Decision(1, "the owner's programs need the processor"))
    agent.agent.parts.monitor.nudge()
    (result,) = await master.results_of(runs[1])
    assert result.outcome is Outcome.GIVEN_BACK
    assert agent.agent.parts.machine.inventory().waiting == [run.attempt for run in runs[2:]]
    await agent.stop()


# Building blocks.


def open_sockets() -> int:
    """Return the open sockets of this process; other descriptors vary, such as those of control groups."""
    return len(psutil.Process().net_connections("unix"))


@pytest.mark.parametrize("missing", ["socket.socketpair", "loopline_worker.launch.posix.Claims"])
async def test_no_descriptor_leaks_when_none_are_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    first = gated(bench, 1)
    await begins(bench, first)
    before = open_sockets()

    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(missing, fail)
        assert (await bench.result(run_of("true", task=2))).outcome is Outcome.GIVEN_BACK
    await until(lambda: open_sockets() <= before)


def test_order_is_either_claimed_or_retracted() -> None:
    claims = Claims()
    claims.offer([1, 2, 300])
    assert claim(claims.supervisors_end) == 1
    assert claims.retract() == [2, 300]
    assert claims.retract() == []
    if sys.platform == "linux":
        with pytest.raises(OSError, match="No such device"):
            os.open(f"/proc/self/fd/{claims.supervisors_end}", os.O_RDONLY)  # as a task could with its supervisor's
    assert claim(claims.supervisors_end) == 0
    claims.close()


def test_prefetch_depth_follows_from_the_length_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    durations = DurationEstimate()
    assert durations.prefetch_depth() == 0, "the duration of these tasks is unknown"
    for seconds, expected in ((0.001, 16), (0.0035, 5), (60.0, 0), (0.001, 16)):
        for _ in range(50):
            durations.add(seconds)
        assert durations.prefetch_depth() == expected
    durations.add(3600.0)
    assert durations.prefetch_depth() == 0, "a single long task suffices"
