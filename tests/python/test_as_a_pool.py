"""The Executor in place of the standard library's pools: what CPython's own tests ask of those, one by one."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import os
import subprocess
import sys
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

import loopline
from loopline import executor as executor_module
from loopline.functions import call_submitter, wait_notice
from loopline.functions.calls import outcome_of
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId, TaskState
from loopline_shared.protocol.client_link import TaskEnd
from loopline_shared.rest.bodies import Reason
from tests.python.small_grid import SmallGrid
from tests.python.test_executor import until

BEGIN = """
import atexit, loopline

@atexit.register
def too_late():
    try:
        executor.submit(abs, -1)
    except RuntimeError as error:
        print(error)

executor = loopline.Executor({url!r}, "t", detach={detach})
future = executor.submit(abs, -7)
future.add_done_callback(lambda done: print("it is", done.result()))
"""


@pytest.fixture
def executor(grid: SmallGrid) -> Iterator[loopline.Executor]:
    executor = loopline.Executor(grid.url, "t")
    yield executor
    executor.terminate()


class Thing:
    """Something that can be watched by a weak reference."""


@pytest.mark.parametrize(("count", "chunk"), [(20, 1), (20, 7), (1100, None)])
def test_map_releases_consumed_results(executor: loopline.Executor, count: int, chunk: int | None) -> None:
    watched = []
    for thing in executor.map(lambda _: Thing(), range(count), chunksize=chunk):
        watched.append(weakref.ref(thing))
        del thing
        if len(watched) % (1 + count // 5) == 0:
            gc.collect()
        until(lambda: watched[-1]() is None)  # the thread that set the result may not have left its function yet
    assert len(watched) == count


def test_abandoned_map_is_released_before_its_job_ends(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    grid.holds, grid.makes_tasks = True, 2
    values = executor.map(lambda _: Thing(), range(4))
    until(lambda: executor.jobs)
    finish(1)
    taken = [weakref.ref(next(values)), weakref.ref(next(values))]
    gc.collect()
    until(lambda: [one() for one in taken] == [None, None])


def test_future_is_running_when_its_call_has_a_slot(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    grid.holds = True
    future = executor.submit(abs, -1)
    until(lambda: future.task)
    assert not future.running()
    grid.prefetched = {TaskId(1, 1)}
    assert not future.running()
    grid.running, grid.prefetched = {TaskId(1, 1)}, set()
    assert future.running()
    finish(1)
    assert future.result(60) == 1
    assert not future.running()


@pytest.mark.parametrize("wait", [True, False])
def test_cancelling_at_shutdown_lets_running_calls_end(
    grid: SmallGrid, finish: Callable[[int], None], wait: bool
) -> None:
    grid.holds = True
    executor = loopline.Executor(grid.url, "t")
    futures = executor._map(abs, [(-number,) for number in range(3)], 1)[0]
    until(lambda: futures[0].task)
    grid.running, grid.prefetched = {TaskId(1, 2)}, {TaskId(1, 3)}
    waiting = {futures[0], futures[2]}

    def finish_after_both(cancelled: concurrent.futures.Future[int]) -> None:
        waiting.remove(cancelled)
        if not waiting:
            finish(1)

    for future in (futures[0], futures[2]):
        future.add_done_callback(finish_after_both)  # which is called in this thread
    executor.shutdown(wait, cancel_futures=True)
    assert futures[1].result(60) == 1
    assert [future.cancelled() for future in futures] == [True, False, True]


def test_calls_of_different_functions_reach_the_grid_in_their_order(
    executor: loopline.Executor, grid: SmallGrid
) -> None:
    """The order of jobs is the order of submissions: a long call that came first could hold back a short one."""
    grid.is_slow.set()
    first = executor.submit(abs, -1)
    until(lambda: "submit" in grid.asked)
    large = executor.submit(len, bytes(200_000))  # whose argument is a file
    small = executor.submit(str, 7)
    grid.is_slow.clear()
    assert [future.result(60) for future in (first, large, small)] == [1, 200_000, "7"]
    assert first.task
    assert large.task
    assert small.task
    assert first.task.job < large.task.job < small.task.job


def test_terminating_cancels_what_runs(grid: SmallGrid) -> None:
    grid.holds = True
    executor = loopline.Executor(grid.url, "t")
    future = executor.submit(abs, -1)
    until(lambda: future.task)
    grid.running = {TaskId(1, 1)}
    executor.terminate()
    assert future.cancelled()
    assert "POST /jobs/1/cancel" in grid.asked


def test_the_rest_of_a_long_map_is_cancelled_at_shutdown(
    grid: SmallGrid, finish: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_submitter, "PROBED_FOR_S", 1000.0)
    grid.holds = True
    executor = loopline.Executor(grid.url, "t")
    first, rest = executor._map(abs, [(-number,) for number in range(2000)], 0)
    until(lambda: executor.jobs)
    grid.running = {TaskId(1, 1)}
    executor.shutdown(wait=False, cancel_futures=True)
    assert rest
    assert rest.cancelled()
    finish(1)
    assert list(first[0].result(60).outcomes()) == [(0, None)]
    executor.shutdown()
    assert len(grid.jobs) == 1


def test_as_many_tasks_at_a_time_as_there_may_be_workers(grid: SmallGrid, finish: Callable[[int], None]) -> None:
    grid.holds = True
    with loopline.Executor(grid.url, "t", max_workers=2) as executor:
        values = executor.map(abs, range(-5, 0), chunksize=1)
        for jobs in ([2], [2, 2], [2, 2, 1]):
            until(lambda now=jobs: len(executor.jobs) == len(now))
            assert [len(job.calls) for job in grid.jobs.values()] == jobs
            finish(len(jobs))
        assert list(values) == [5, 4, 3, 2, 1]


def test_waiting_call_is_cancelled_at_shutdown(grid: SmallGrid, finish: Callable[[int], None]) -> None:
    grid.holds = True
    executor = loopline.Executor(grid.url, "t", max_workers=1)
    futures = executor._map(abs, [(-number,) for number in range(3)], 1)[0]
    until(lambda: futures[0].task)
    grid.running = {TaskId(1, 1)}
    executor.shutdown(wait=False, cancel_futures=True)
    finish(1)
    assert futures[0].result(60) == 0
    assert [future.cancelled() for future in futures] == [False, True, True]
    executor.shutdown()
    assert len(grid.jobs) == 1


@pytest.mark.parametrize("code", ["no_worker", "no_slot"])
def test_calls_that_no_worker_can_run_are_named_once_on_stderr(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(wait_notice, "FIRST_CHECK_S", 0.01)
    monkeypatch.setattr(wait_notice, "_LONGEST_PAUSE_S", 0.01)
    grid.holds, grid.reasons = True, [Reason(code=code, count=1, detail="no connected worker has the label gpu")]
    future = executor.submit(abs, -1)
    until(lambda: grid.asked.count("GET /jobs/1/explain") > 2)
    finish(1)
    assert future.result(60) == 1
    said = "loopline: job 1 waits: no connected worker has the label gpu\n" if code == "no_worker" else ""
    assert capsys.readouterr().err == said


def test_dask_has_as_many_calls_at_a_time_as_there_are_slots(grid: SmallGrid) -> None:
    grid.pythons = ["3.11"] * 20
    with loopline.Executor(grid.url, "t") as executor:
        assert executor._max_workers == 40
        grid.pythons = []
        assert executor._max_workers is None
    with loopline.Executor(grid.url, "t", max_workers=7) as executor:
        assert executor._max_workers == 7


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_map_with_a_buffer_reads_as_much_as_it_needs(
    executor: loopline.Executor, grid: SmallGrid, chunk: int
) -> None:
    read = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield -number

    values = executor.map(abs, numbers(), buffersize=4, chunksize=chunk)
    assert len(read) == 4 * chunk
    assert list(itertools.islice(values, 100)) == list(range(100))
    assert len(read) <= 100 + 5 * chunk
    values.close()  # type: ignore[attr-defined]
    assert not executor._pending.all()
    assert list(executor.map(pow, [1, 2, 3], [2, 2, 2], buffersize=100)) == [1, 4, 9]
    assert list(executor.map(pow, [], buffersize=1)) == []


def test_an_endless_map_is_refused_without_a_buffer(
    executor: loopline.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "_MOST_UNSIZED", 50)
    with pytest.raises(ValueError, match="more than 50 items: give map"):
        executor.map(abs, itertools.count())
    assert list(executor.map(abs, iter(range(50)))) == list(range(50))
    assert list(executor.map(pow, range(60), itertools.repeat(1))) == list(range(60))
    for size, error in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="buffersize must be"):
            executor.map(abs, [1], buffersize=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("echo", [True, False, None])
def test_output_of_a_call_is_printed_before_its_result_arrives(
    grid: SmallGrid, capfd: pytest.CaptureFixture[str], echo: bool | None
) -> None:
    grid.output = {"stdout": b"hello\n", "stderr": b"\xff" * 70_000}
    with loopline.Executor(grid.url, "t", echo=echo) as executor:
        assert executor.submit(bytes, 10_000).result(60) == bytes(10_000)
        printed = capfd.readouterr()
        assert list(executor.map(abs, [-1, -2], chunksize=2)) == [1, 2]
    rest = "... (`loopline logs 1.1` has the rest)\n"
    assert (printed.out, printed.err) == (
        ("hello\n", "\N{REPLACEMENT CHARACTER}" * 2**16 + rest) if echo else ("", "")
    )


def test_notebooks_show_where_jobs_are(grid: SmallGrid) -> None:
    with loopline.Executor(grid.url, "t") as executor:
        executor.submit(abs, -1).result(60)
        assert repr(executor) == f"<Executor of {grid.url}>"
        assert f'<a href="{grid.url}/jobs/1" target="_blank">job 1</a>' in executor._repr_html_()
    with loopline.Client(grid.url, "t") as client:
        assert f'<a href="{grid.url}" ' in client._repr_html_()
        assert "job 1" in client.job(1)._repr_html_()
        assert repr(client) == f"<Client of {grid.url}>"


def test_an_argument_that_is_a_future_is_its_result(executor: loopline.Executor) -> None:
    two, ten = executor.submit(abs, -2), executor.submit(int, "10")
    assert executor.submit(pow, two, exp=ten).result(60) == 1024
    assert list(executor.map(pow, [two, 3], [ten, two])) == [1024, 9]
    numbers = [3, 1, 2]
    later: concurrent.futures.Future[bool] = concurrent.futures.Future()
    ordered = executor.submit(sorted, numbers, reverse=later)
    numbers.clear()  # the other arguments are as they were
    later.set_result(True)
    assert ordered.result(60) == [3, 2, 1]


def test_a_call_of_a_future_that_fails_fails(executor: loopline.Executor, grid: SmallGrid) -> None:
    broken = executor.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        executor.submit(abs, broken).result(60)
    grid.holds = True
    waits = executor.submit(abs, -1)
    future, again = executor.submit(abs, waits), executor.submit(abs, waits)
    until(lambda: len(grid.jobs) == 2)
    assert future.cancel()
    assert waits.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        again.result(60)
    executor.shutdown()
    assert len(grid.jobs) == 2


def test_calls_that_wait_for_a_future_are_waited_for_at_shutdown(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    grid.holds = True
    first = executor.submit(abs, -3)
    second = executor.submit(pow, first, 2)
    until(lambda: executor.jobs)
    executor.shutdown(wait=False)
    finish(1)
    until(lambda: len(grid.jobs) == 2)
    finish(2)
    executor.shutdown()
    assert second.result(0) == 9


def test_an_executor_cannot_travel_to_a_worker(executor: loopline.Executor) -> None:
    with pytest.raises(TypeError, match="an Executor cannot travel to a worker"):
        executor.submit(lambda: executor.submit(abs, -1).result()).result(60)


def test_a_future_says_where_it_is(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    grid.holds = True
    future = executor.submit(abs, -1)
    until(lambda: future.job)
    assert (future.job, future.state, future.worker) == (1, "submitted", None)
    assert repr(future) == "<GridFuture 1.1 submitted>"
    finish(1)
    assert future.result(60) == 1
    assert (future.state, future.worker) == ("finished", "w")
    assert repr(future) == "<GridFuture 1.1 finished on w>"
    grid.holds = False
    broken = executor.submit(int, "x")
    assert broken.exception(60)
    assert repr(broken) == "<GridFuture 2.1 failed on w>"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_a_forked_child_says_nothing_of_its_parents_calls(grid: SmallGrid) -> None:
    grid.holds = True
    forks = "\nimport os, sys\nif not os.fork(): sys.exit()\nassert not os.wait()[1]\nexecutor.terminate()"
    with run(BEGIN.format(url=grid.url, detach=False) + forks) as program:
        out, error = program.communicate(timeout=60)
    assert error.count("loopline") == 0
    assert program.returncode == 0, out


def test_invalid_arguments_are_refused_at_once() -> None:
    for number in (0, -1):
        with pytest.raises(ValueError, match="max_workers must be greater than 0"):
            loopline.Executor(max_workers=number)
    with pytest.raises(TypeError, match="initializer must be a callable"):
        loopline.Executor(initializer="no")  # type: ignore[arg-type]
    with pytest.raises(LooplineError, match="requires: memry: there is no such key") as unknown:
        loopline.Executor(requires={"memry": 3})
    assert unknown.value.hint == "did you mean memory_bytes?"
    with pytest.raises(LooplineError, match="checkpoint: every: there is no such key"):
        loopline.Executor(checkpoint={"every": 3})
    with pytest.raises(LooplineError, match="checkpoint: "):
        loopline.Executor(checkpoint="often")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot detach"):
        loopline.Executor(max_workers=2, detach=True)


def test_the_initializer_comes_once_before_the_first_call_of_an_interpreter(grid: SmallGrid) -> None:
    """The stand-in's only interpreter is this one."""
    name = f"made_by_{uuid.uuid4().hex}"

    def make(value: list[int]) -> None:
        import sys

        setattr(sys, name, value)

    def add(number: int) -> int:
        import sys

        made: list[int] = getattr(sys, name)
        made.append(number)
        return sum(made)

    with loopline.Executor(grid.url, "t", initializer=make, initargs=([100],)) as executor:
        assert [executor.submit(add, number).result(60) for number in range(3)] == [100, 101, 103]
        assert list(executor.map(lambda number: -add(number), [1], chunksize=2)) == [-104]
        assert len({job.spec.function.file for job in grid.jobs.values() if job.spec.function}) == 2


def test_an_initializer_that_raises_breaks_the_calls(grid: SmallGrid) -> None:
    def fail() -> None:
        raise OSError("no licence")

    with (
        loopline.Executor(grid.url, "t", initializer=fail) as executor,
        pytest.raises(concurrent.futures.BrokenExecutor, match="OSError: no licence"),
    ):
        executor.submit(abs, -1).result(60)


MODEL = """
def prepare(start):
    global model, count
    model, count = {"start": start}, start
    cache["prepared"] = True

def look(number):
    model[number] = cache["prepared"]
    return len(model), scale

def add(number):
    global count
    count += number
    return count
"""


def test_globals_of_the_initializer_belong_to_the_interpreter(grid: SmallGrid) -> None:
    """Every function finds them as the last call left them; other globals are those of the program."""
    program: dict[str, Any] = {"__name__": "__main__", "cache": {}, "scale": 1}
    exec(MODEL, program)
    with loopline.Executor(grid.url, "t", initializer=program["prepare"], initargs=(10,)) as executor:
        assert executor.submit(program["look"], 1).result(60) == (2, 1)
        assert executor.submit(program["add"], 1).result(60) == 11
        program["scale"] = 2
        assert executor.submit(program["look"], 2).result(60) == (3, 2)
        assert list(executor.map(program["add"], [1, 1], chunksize=2)) == [12, 13]


def run(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("last", ["", "executor.shutdown(wait=False)"])
def test_the_end_of_a_program_waits_for_its_calls(grid: SmallGrid, finish: Callable[[int], None], last: str) -> None:
    grid.holds = True
    with run(BEGIN.format(url=grid.url, detach=False) + last) as program:
        until(lambda: grid.jobs)
        finish(1)
        out, error = program.communicate(timeout=60)
    said, refused = out.splitlines()
    assert said == "it is 7"
    assert refused.startswith("cannot schedule new futures after")
    assert error == ""


def test_a_program_that_detaches_leaves_its_calls_to_the_grid_and_says_so(grid: SmallGrid) -> None:
    grid.holds = True
    with run(BEGIN.format(url=grid.url, detach=True)) as program:
        out, error = program.communicate(timeout=60)
    assert out == "cannot schedule new futures after interpreter shutdown\n"
    assert error == "loopline: 1 call continues on the grid, in job 1; Executor.attach(1) has its results\n"
    assert grid.jobs[1].state.value == "running"


VALUE = cloudpickle.dumps((b"a value of", "two parts", "or three"))


@pytest.mark.parametrize("content", [b"", VALUE, VALUE[:-9], cloudpickle.dumps(1), None])
def test_failed_call_is_reported_as_failed_even_if_it_left_a_value(content: bytes | None) -> None:
    reason = "cannot read the arguments, or write the result: [Errno 28] No space left on device"
    end = TaskEnd(1, TaskState.FAILED, "w", exit_code=1, reason=reason, value=None)
    value, error = outcome_of(TaskId(3, 1), end, content)
    assert value is None
    assert isinstance(error, loopline.CallError)
    assert str(error).startswith(f"task 3.1 failed on w: {reason}")


def test_unreadable_value_is_reported_as_unreadable() -> None:
    end = TaskEnd(1, TaskState.SUCCEEDED, "w", exit_code=0, reason="", value=None)
    _, error = outcome_of(TaskId(3, 1), end, VALUE[:-9])
    assert "cannot be unpickled here" in str(error)
