"""The synchronous client, job handles, and how little importing them takes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import loopline
import loopline.blocking
from tests.python.small_grid import SmallGrid
from tests.python.test_executor import until

ROOT = Path(__file__).parents[2]


def test_importing_it_is_light() -> None:
    heavy = {"aiohttp", "pydantic", "cloudpickle", "rich"}
    code = f"import sys, loopline; print({heavy!r} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


def test_error_survives_pickling() -> None:
    error = loopline.LooplineError("no_room", "there is no room", "make room", 507)
    copy = pickle.loads(pickle.dumps(loopline.CallError("lost", "it is lost", "look for it")))
    assert (type(copy), copy.code, str(copy), copy.hint) == (loopline.CallError, "lost", "it is lost", "look for it")
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_client_and_job_have_each_asynchronous_method() -> None:
    for asynchronous, ordinary in ((loopline.AsyncClient, loopline.Client), (loopline.AsyncJob, loopline.Job)):
        methods = {name for name, _ in inspect.getmembers(asynchronous, inspect.isfunction) if name[0] != "_"}
        assert methods <= set(dir(ordinary))
    generated = runpy.run_path(str(ROOT / "client" / "blocking_methods.py"))["text"]()
    assert Path(loopline.blocking.__file__).read_text("utf-8") == generated, "run: python client/blocking_methods.py"


USER = """
from collections.abc import Iterator
from typing import assert_type

import loopline
from loopline_shared.rest.bodies import JobView, TaskResult

def double(number: int) -> int:
    return 2 * number

def use(client: loopline.Client, executor: loopline.Executor) -> None:
    job = client.submit(["true"])
    assert_type(job, loopline.Job)
    assert_type(job.wait().name, str)
    assert_type(job.results(), Iterator[TaskResult])
    assert_type(job.explain(), str)
    assert_type(client.cancel(job.id), JobView)
    assert_type([worker.name for worker in client.workers()], list[str])
    future = executor.submit(double, 4)
    assert_type(future.result(), int)
    assert_type(future.worker, str | None)
    assert_type(list(executor.map(double, [1])), list[int])
"""


@pytest.mark.full
def test_types_of_a_users_program_are_known(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USER)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert checked.stdout.startswith("Success"), checked.stdout


def test_a_map_as_a_job(grid: SmallGrid, finish: Callable[[int], None]) -> None:
    grid.holds = True
    with loopline.Client(grid.url, "t") as client:
        job = client.map(lambda x: x + 1, [1, 2, 3], name="plus one")
        assert (job.id, job.state, grid.jobs[1].spec.name) == (1, "running", "plus one")
        finish(1)
        assert job.wait(60).state == "succeeded"
        assert list(job.values()) == [2, 3, 4]
        assert {result.number: result.get() for result in client.job(1).results()} == {1: 2, 2: 3, 3: 4}


def test_starmap_raises_the_exception_of_a_call(grid: SmallGrid) -> None:
    with loopline.Client(grid.url, "t") as client:
        values = client.starmap(divmod, [(7, 2), (1, 0)]).values()
        assert next(values) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            next(values)


def test_waiting_has_a_limit(grid: SmallGrid) -> None:
    grid.holds = True
    with loopline.Client(grid.url, "t") as client:
        job = client.map(abs, [1])
        with pytest.raises(TimeoutError):
            job.wait(0.05)
        job.cancel()
        assert job.wait(60).state == "cancelled"


def test_values_of_a_cancelled_job_are_not_all_there(grid: SmallGrid) -> None:
    grid.holds = True
    with loopline.Client(grid.url, "t") as client:
        job = client.map(abs, [1])
        job.cancel()
        with pytest.raises(loopline.CallError, match="call 1 of job 1 was never made"):
            list(job.values())


def test_there_is_no_such_job(grid: SmallGrid) -> None:
    with loopline.Client(grid.url, "t") as client, pytest.raises(loopline.LooplineError, match="no job 9"):
        client.job(9)


async def test_in_a_notebook_whose_loop_runs(grid: SmallGrid) -> None:
    with loopline.Client(grid.url, "t") as client:
        assert list(client.map(abs, [-1]).values()) == [1]
    async with loopline.AsyncClient(grid.url, "t") as client:
        assert [value async for value in (await client.map(abs, [-2])).values()] == [2]


def test_from_many_threads_and_closed_cleanly(grid: SmallGrid) -> None:
    before = set(threading.enumerate())
    client = loopline.Client(grid.url, "t")
    found: list[int] = []
    threads = [threading.Thread(target=lambda n=n: found.extend(client.map(abs, [-n]).values())) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3, 4]
    client.close()
    client.close()
    assert not set(threading.enumerate()) - before
    with pytest.raises(RuntimeError, match="closed"):
        client.whoami()


def test_a_stream_may_be_left_before_its_end(grid: SmallGrid) -> None:
    with loopline.Client(grid.url, "t") as client:
        job = client.map(abs, range(100))
        results = job.results()
        next(results)
        results.close()
        until(lambda: asyncio.run_coroutine_threadsafe(_tasks(), client._loop_thread.loop).result(60) <= 1)


async def _tasks() -> int:
    return len(asyncio.all_tasks()) - 1


def test_uploads_are_where_the_documentation_says() -> None:
    from loopline import files

    assert files is importlib.import_module("loopline.transfer.files")
