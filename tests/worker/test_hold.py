"""Holds: a task is stopped for some milliseconds, and nothing else that has stopped it is undone."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from loopline_worker.launch.process_tree import PosixTree
from loopline_worker.supervisor import processes, requests
from loopline_worker.supervisor.control_groups import ControlGroup
from loopline_worker.supervisor.requests import ZygoteLine
from tests.worker.bench import Bench, processes_of, python, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
TWO = """
import os, threading, time
other = os.fork()
for _ in range(2):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
if other:
    open("begun", "w").close()
while True:
    time.sleep(0.001)
"""


async def held(bench: Bench) -> PosixTree:
    """Start two processes, and return their tree once it is held."""
    run = python(TWO)
    await bench.begins(run)
    tree = bench.runner._attempts[run.attempt]._tree
    assert isinstance(tree, PosixTree)
    assert tree.hold()
    await until(tree.is_held)
    return tree


def ticks(folder: Path) -> list[int]:
    """Return how often each process has been on a processor by its own will."""
    return [process.num_ctx_switches().voluntary for process in processes_of(folder)]


async def run_on(folder: Path) -> None:
    """Wait until all processes have run again."""
    before = ticks(folder)
    await until(lambda: all(now > then for now, then in zip(ticks(folder), before, strict=True)))


async def test_held_task_continues_after_its_release(bench: Bench) -> None:
    tree = await held(bench)
    before = ticks(bench.folder)
    for _ in range(10):
        await asyncio.sleep(0)
        assert tree.is_held()
    assert ticks(bench.folder) == before
    tree.release()
    await run_on(bench.folder)


async def test_task_that_is_frozen_while_held_stays_frozen(bench: Bench) -> None:
    tree = await held(bench)
    tree.freeze()
    tree.release()
    await until(tree.is_still)
    before = ticks(bench.folder)
    assert tree.is_still()
    assert ticks(bench.folder) == before
    tree.thaw()
    await run_on(bench.folder)


async def test_thaw_waits_for_the_release(bench: Bench) -> None:
    tree = await held(bench)
    tree.release()
    tree.freeze()
    await until(tree.is_still)
    assert tree.hold()
    await until(tree.is_held)
    tree.thaw()
    assert tree.is_held()
    tree.release()
    assert not tree.is_frozen
    await run_on(bench.folder)


@pytest.mark.parametrize("by_group", [True, False])
async def test_process_that_the_task_has_stopped_stays_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by_group: bool
) -> None:
    if not by_group:
        monkeypatch.setattr(ControlGroup, "freeze", lambda self, frozen: False)
    tree = await held(bench)
    tree.release()
    await run_on(bench.folder)
    stopped, runs = processes_of(bench.folder)
    os.kill(stopped.pid, signal.SIGSTOP)
    await until(lambda: stopped.status() == psutil.STATUS_STOPPED)
    assert tree.hold()
    await until(tree.is_held)
    tree.release()
    before = runs.num_ctx_switches().voluntary
    await until(lambda: runs.num_ctx_switches().voluntary > before)
    assert stopped.status() == psutil.STATUS_STOPPED
    os.kill(stopped.pid, signal.SIGCONT)


async def test_task_is_not_held_while_one_of_its_threads_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlGroup, "freeze", lambda self, frozen: False)
    tree = await held(bench)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "thread_states", lambda pid: ["T", "R"])
        assert not tree.is_held()
    assert tree.is_held()
    tree.release()


async def test_held_task_can_be_killed(bench: Bench) -> None:
    tree = await held(bench)
    tree.kill()
    await until(lambda: bench.results)
    assert tree.has_ended
    assert not tree.is_held()
    tree.release()


def test_signal_to_many_processes_reaches_all_of_them() -> None:
    """A request has room for 5,000."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ZygoteLine(ours).signal(7, signal.SIGCONT, range(10_000, 16_000))
        ZygoteLine(ours).signal(7, signal.SIGKILL)
        signalled: list[str] = []
        while (request := requests.receive(theirs)) and request[1] != ["7", str(int(signal.SIGKILL))]:
            kind, (root, signum, *pids), _ = request
            assert (kind, root, int(signum)) == (requests.SIGNAL, "7", signal.SIGCONT)
            signalled += pids
    assert [*map(int, signalled)] == [*range(10_000, 16_000)]
