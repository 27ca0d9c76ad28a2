"""Sweeps: answers in order on every executor, errors and interruptions that leave nothing behind."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline_shared.errors import LooplineError
from loopline_simulator.__main__ import main
from loopline_simulator.sweep import MakeExecutor, available_cores, on_cores, on_dask, sweep

ROOT = Path(__file__).parents[2]
SMALL = [
    "no-passing",
    "--json",
    "--seeds",
    "2",
    "--jobs",
    "4",
    "--tasks",
    "8",
    "--pcs",
    "6",
    "--intervals",
    "20",
    "60",
]


@pytest.mark.parametrize("make", [on_cores(1), on_cores(2), partial(ThreadPoolExecutor, 3)])
def test_answers_come_in_the_order_of_their_items(make: MakeExecutor) -> None:
    shown: list[float] = []
    squares = [float(n * n) for n in range(30, 0, -1)]
    assert sweep(math.sqrt, squares, make, shown.append) == [float(n) for n in range(30, 0, -1)]
    assert sorted(shown) == [float(n) for n in range(1, 31)]


@pytest.mark.parametrize("processes", [1, 2])
def test_error_of_a_run_is_raised_and_the_rest_is_dropped(processes: int) -> None:
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        sweep(math.sqrt, [4.0, -1.0, *[1.0] * 100], on_cores(processes))


def test_there_is_a_core() -> None:
    assert available_cores() >= 1


GLOBAL_COMPUTING = ["global-computing", "--json", "--seeds", "2", "--tables", "4", "--readings", "text"]


@cache
def json_of_this_process(*words: str) -> str:
    with redirect_stdout(StringIO()) as printed:
        assert main([*words, "--processes", "1"]) == 0
    return printed.getvalue()


def json_of_another(*words: str) -> str:
    """Return the output of a process with another hash seed for strings."""
    command = [sys.executable, "-m", "loopline_simulator", *words]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONHASHSEED": "4711", "PATH": ""}, capture_output=True, check=True, timeout=110
    )
    return done.stdout.decode()


@pytest.mark.parametrize(
    "words", [SMALL, pytest.param(GLOBAL_COMPUTING, marks=pytest.mark.campaign)], ids=lambda words: words[0]
)
def test_a_seed_gives_the_same_bytes_on_any_number_of_processes_and_under_any_hash_seed(words: list[str]) -> None:
    alone = json_of_this_process(*words)
    assert json_of_another(*words, "--processes", "2") == alone
    first_run, *_ = runs = json.loads(alone)["runs"]
    assert any({**run, "seed": 1} != first_run for run in runs if run["seed"] == 2)


def test_a_run_depends_on_its_own_seed_alone() -> None:
    found = []
    for seeds in ("--seeds 2", "--seeds 1 --first-seed 2"):
        printed = json_of_this_process(*" ".join(SMALL).replace("--seeds 2", seeds).split())
        found.append([run for run in json.loads(printed)["runs"] if run["seed"] == 2])
    assert found[0] == found[1] != []


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.mark.campaign
def test_a_dask_cluster_gives_the_same_bytes(dask: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--dask", dask]) == 0
    assert capsys.readouterr().out == json_of_this_process(*SMALL)


@pytest.mark.campaign
def test_error_on_a_dask_cluster_is_raised_here(dask: str) -> None:
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        sweep(math.sqrt, [4.0, -1.0], on_dask(dask))


def test_an_address_that_is_none_is_said_to_be() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(LooplineError, match="no Dask scheduler answers at nonsense"), on_dask("nonsense://x")():
        pass


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Background processes of a script ignore interruptions, and so do their children: restore the default."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InterruptedAsItTakesIn(ThreadPoolExecutor):
    """A sweep is interrupted in the middle of handing something out."""

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        signal.raise_signal(signal.SIGINT)
        self.taken_in = super().submit(*call, **named)
        return self.taken_in


@pytest.mark.usefixtures("interruptible")
def test_interruption_waits_until_the_executor_has_its_runs() -> None:
    """Where it strikes as a process pool does so, a lock is left taken, and the pool cannot be closed any more."""
    executor = InterruptedAsItTakesIn(1)
    with pytest.raises(KeyboardInterrupt):
        sweep(math.sqrt, [4.0, 9.0], lambda: executor)
    assert executor.taken_in.cancelled() or executor.taken_in.result() == 2.0
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # as ever, from now on


@pytest.mark.campaign
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to one process")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_sweep_ends_its_processes_and_says_so() -> None:
    command = [sys.executable, "-m", "loopline_simulator", "no-passing", "--seeds", "1000", "--processes", "2"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as sweeping:
        at_work = psutil.Process(sweeping.pid)
        while sum("spawn_main" in " ".join(child.cmdline()) for child in at_work.children()) < 2:
            assert sweeping.poll() is None
        children = at_work.children()
        sweeping.send_signal(signal.SIGINT)
        out, error = sweeping.communicate(timeout=60)
    assert (sweeping.returncode, out, error.decode()) == (130, b"", "interrupted\n")
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
