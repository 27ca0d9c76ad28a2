"""The Executor as users of concurrent.futures know it, against a stand-in for the master."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loopline
from loopline import executor as executor_module
from loopline import http
from loopline.functions import batching, call_submitter, calls
from loopline.functions.futures import GridFuture
from loopline.functions.remote_traceback import with_source
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId
from loopline_shared.protocol.client_link import Refusal
from loopline_worker.functions.program import call_loop
from tests.python.small_grid import SmallGrid


def until(holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.fixture
def executor(grid: SmallGrid) -> Iterator[loopline.Executor]:
    executor = loopline.Executor(grid.url, "t", size=2.0, name="mine")
    yield executor
    executor.shutdown(cancel_futures=True)


def test_values_come_back_in_order_whatever_their_number(executor: loopline.Executor, grid: SmallGrid) -> None:
    assert list(executor.map(lambda x, y: x * y, range(1000), range(1000))) == [x * x for x in range(1000)]
    assert executor.submit(lambda *, key: key, key="named").result(60) == "named"
    spec = grid.jobs[1].spec
    assert (spec.name, spec.size, spec.max_attempts, spec.requires.python) == ("mine", 2000.0, 1, calls.python_here())
    assert len(executor.jobs) == 2, "a map is one job"


def test_jobs_returned_before_do_not_change_with_later_calls(executor: loopline.Executor) -> None:
    executor.submit(abs, -1).result(60)
    before = executor.jobs
    executor.submit(abs, -2).result(60)
    assert (len(before), len(executor.jobs)) == (1, 2)


@pytest.fixture
def gathering(grid: SmallGrid, monkeypatch: pytest.MonkeyPatch) -> Iterator[loopline.Executor]:
    """An executor that gathers calls in a row although this computer pauses between them."""
    monkeypatch.setattr(batching, "_LONGEST_S", 1000.0)
    with loopline.Executor(grid.url, "t", gather_s=0.1) as executor:
        yield executor


def test_many_submits_are_few_jobs_and_one_upload(gathering: loopline.Executor, grid: SmallGrid) -> None:
    def double(x: int) -> int:
        return 2 * x

    futures = [gathering.submit(double, number) for number in range(2000)]
    assert [future.result(60) for future in futures] == [2 * number for number in range(2000)]
    assert len(grid.jobs) <= 10
    assert len({job.spec.function.file for job in grid.jobs.values() if job.spec.function}) == 1
    assert {future.task.job for future in futures if future.task} == set(grid.jobs)


def test_submits_of_one_method_are_few_jobs_but_what_has_changed_is_sent_as_it_is(
    gathering: loopline.Executor, grid: SmallGrid
) -> None:
    class Adder:
        by = 0

        def add(self, x: int) -> int:
            return x + self.by

    adder = Adder()
    assert [future.result(60) for future in [gathering.submit(adder.add, number) for number in range(100)]] == list(
        range(100)
    )
    assert len(grid.jobs) <= 10
    futures = []
    for adder.by in range(5):
        futures.append(gathering.submit(adder.add, 10))
    assert [future.result(60) for future in futures] == [10, 11, 12, 13, 14]


def test_pickling_may_run_what_cancels_other_calls(executor: loopline.Executor, grid: SmallGrid) -> None:
    """Half-read maps are collected at any time; and other threads cancel."""
    grid.holds = True
    other = executor.submit(abs, -1)

    class Odd:
        def __reduce__(self) -> Any:
            thread = threading.Thread(target=other.cancel, daemon=True)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
            return (abs, (1,))

        def __call__(self) -> None: ...

    executor.submit(Odd()).cancel()
    assert other.cancelled()
    with executor._pending._lock:
        assert executor.submit(len, "").cancel(), "in the same thread, as a collection is"


def test_a_value_is_checked_before_it_is_unpickled(executor: loopline.Executor, grid: SmallGrid) -> None:
    grid.spoils = True
    with pytest.raises(LooplineError, match="is something else"):
        executor.submit(lambda: bytes(100_000)).result(60)


def test_calls_with_checkpoints_are_tasks_of_their_own(grid: SmallGrid) -> None:
    for given, every_s in ((True, None), ({"every_s": 60}, 60.0)):
        with loopline.Executor(grid.url, "secret", checkpoint=given) as executor:
            assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]
            with pytest.raises(ValueError, match="leave out chunksize"):
                executor.map(abs, [1], chunksize=2)
        (job,) = executor.jobs
        spec = grid.jobs[job].spec
        assert spec.checkpoint
        assert (len(grid.jobs[job].calls), spec.checkpoint.every_s) == (3, every_s)


def test_chunks_are_fewer_tasks(executor: loopline.Executor, grid: SmallGrid) -> None:
    assert list(executor.map(abs, [-1, -2, -3, -4, -5], chunksize=2)) == [1, 2, 3, 4, 5]
    assert len(grid.jobs[1].calls) == 3
    assert grid.jobs[1].spec.size == 10.0
    with pytest.raises(ValueError):
        executor.map(abs, [1], chunksize=0)


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_map_of_more_tasks_than_a_job_may_have_is_several_jobs(
    executor: loopline.Executor, grid: SmallGrid, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(call_submitter, "MOST_CALLS_PER_JOB", 3)
    assert list(executor.map(abs, range(-13, 0), chunksize=chunk)) == list(range(13, 0, -1))
    assert max(len(job.calls) for job in grid.jobs.values()) == 3


def test_calls_of_one_task_have_each_its_own_result(executor: loopline.Executor, grid: SmallGrid) -> None:
    values = executor.map(lambda x: 1 / x, [1, 2, 0, 4], chunksize=4)
    assert [next(values), next(values)] == [1.0, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(values)
    again = executor.attach(1)
    assert [future.result(60) for future in again if future is not again[2]] == [1.0, 0.5, 0.25]
    assert isinstance(again[2].exception(60), ZeroDivisionError)
    assert {future.task for future in again} == {TaskId(1, 1)}
    with loopline.Client(grid.url, "t") as client:
        found = client.job(1).values()
        assert [next(found), next(found)] == [1.0, 0.5]
        with pytest.raises(ZeroDivisionError):
            next(found)


def test_calls_that_their_task_did_not_come_to_have_its_error(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    grid.holds, grid.makes = True, 2
    values = executor.map(abs, [-1, -2, -3, -4], chunksize=4)
    until(lambda: executor.jobs)
    finish(1)
    assert [next(values), next(values)] == [1, 2]
    with pytest.raises(loopline.CallError, match="it took too long"):
        next(values)


def test_many_short_calls_share_tasks_and_few_do_not(
    executor: loopline.Executor, grid: SmallGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_submitter, "PROBED_FOR_S", 1000.0)
    grid.call_s = 0.001
    assert list(executor.map(abs, range(-20_000, 0))) == list(range(20_000, 0, -1))
    probe, rest = (grid.jobs[number].spec.function for number in executor.jobs)
    assert probe
    assert rest
    assert (probe.chunk, probe.calls, rest.calls) == (1, executor_module.PROBED_CALLS, 20_000 - probe.calls)
    assert rest.chunk == -(-rest.calls // call_submitter.FEWEST_TASKS), "none is a great part of the whole"
    futures = [future for number in executor.jobs for future in executor.attach(number)]
    assert [future.result(60) for future in futures[:3]] == [20_000, 19_999, 19_998]
    assert len(futures) == 20_000
    list(executor.map(abs, range(1000)))
    assert len(grid.jobs[3].calls) == 1000


@pytest.mark.parametrize(
    ("seconds", "slots", "length", "chunk"),
    [
        ([1e-6], 2, 10, 250),  # fewest tasks
        ([1e-6], 1000, 10, 13),  # several for each slot
        ([0.005, 0.005, 3.0], 2, 10, 20),  # target time of a task; the first call may include imports and is ignored
        ([10.0], 2, 10, 1),
        ([], 2, 10, 1),  # nothing is known
        ([1e-6], 2, 1_000, 3),  # their arguments travel with the task
        ([1e-6], 2, 10_000, 1),
    ],
)
def test_how_many_calls_a_task_makes(seconds: list[float], slots: int, length: int, chunk: int) -> None:
    assert call_submitter.chunk_for([bytes(length)] * 100_000, seconds, slots) == chunk


def test_a_map_whose_calls_are_long_is_sent_before_they_are_made(
    executor: loopline.Executor, grid: SmallGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_submitter, "PROBED_FOR_S", 0.05)
    grid.holds = True
    executor.map(abs, range(2000))
    until(lambda: len(grid.jobs) == 2)
    assert len(grid.jobs[2].calls) == 2000 - executor_module.PROBED_CALLS
    executor.shutdown(cancel_futures=True)


@pytest.fixture
def unhurried(executor: loopline.Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor's loop acts on each cancellation before the test's thread makes the next one."""
    cancel = GridFuture.cancel

    def cancel_and_let_the_loop_run(future: GridFuture) -> bool:
        was_cancelled = cancel(future)
        if threading.current_thread() is threading.main_thread():
            for _ in range(20):
                executor._loop_thread.call(asyncio.sleep(0))
        return was_cancelled

    monkeypatch.setattr(GridFuture, "cancel", cancel_and_let_the_loop_run)
    monkeypatch.setattr(call_submitter, "PROBED_FOR_S", 1000.0)  # only the end of the first calls has the rest sent


@pytest.mark.usefixtures("unhurried")
def test_a_map_that_is_given_up_early_is_cancelled_and_its_rest_never_sent(
    executor: loopline.Executor, grid: SmallGrid
) -> None:
    grid.holds = True
    values = executor.map(abs, range(2000), timeout=0)
    until(lambda: executor.jobs)
    with pytest.raises(TimeoutError):
        next(values)
    executor.shutdown()
    assert "POST /jobs/1/cancel" in grid.asked
    assert len(grid.jobs) == 1


@pytest.mark.usefixtures("unhurried")
def test_the_rest_of_a_map_is_never_sent_once_its_first_calls_are_cancelled(
    executor: loopline.Executor, grid: SmallGrid
) -> None:
    """Executor.shutdown(cancel_futures=True) cancels futures in any order."""
    grid.holds = True
    first, rest = executor._map(abs, [(number,) for number in range(2000)], 0)
    until(lambda: executor.jobs)
    for future in first:
        future.cancel()
    executor.shutdown()
    assert rest
    assert rest.cancelled()
    assert len(grid.jobs) == 1


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_a_map_that_is_given_up_before_it_is_sent_never_is(
    executor: loopline.Executor, grid: SmallGrid, chunk: int | None
) -> None:
    is_given_up = threading.Event()
    executor._loop_thread.loop.call_soon_threadsafe(is_given_up.wait)  # blocks the executor's loop
    with pytest.raises(TimeoutError):
        next(executor.map(abs, range(2000), chunksize=chunk, timeout=0))
    is_given_up.set()
    executor.shutdown()
    assert grid.jobs == {}


def test_error_in_a_long_map_is_raised_once(
    executor: loopline.Executor, grid: SmallGrid, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(grid, "_refusal", lambda number, spec: Refusal(number, 422, "invalid", "it is too much"))
    with pytest.raises(LooplineError, match="too much"):
        list(executor.map(abs, range(2000)))
    executor.shutdown()
    gc.collect()
    assert caplog.records == []


def test_a_single_call_is_one_message_once_the_function_is_there(
    executor: loopline.Executor, grid: SmallGrid
) -> None:
    executor.submit(abs, -1).result(60)
    grid.asked.clear()
    for number in range(5):
        assert executor.submit(abs, -number).result(60) == number
    assert grid.asked == ["submit"] * 5


def test_a_call_waits_for_no_answer_to_the_one_before_it(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    executor.submit(abs, -1).result(60)
    grid.holds = grid.answers_late = True
    grid.patient.clear()
    first = executor.submit(abs, -2)
    until(lambda: grid.patient == [True])
    second = executor.submit(abs, -3)
    until(lambda: executor.jobs == [1, 3])
    assert grid.patient == [True, False]
    for job in (2, 3):
        finish(job)
    assert (first.result(60), second.result(60)) == (2, 3)
    assert executor.jobs == [1, 3, 2]


def test_a_function_that_the_master_did_away_with_is_brought_again(
    executor: loopline.Executor, grid: SmallGrid
) -> None:
    assert executor.submit(abs, -1).result(60) == 1
    grid.files.clear()
    assert executor.submit(abs, -2).result(60) == 2


def test_results_of_a_lost_link_are_not_requested_again(
    small: tuple[SmallGrid, asyncio.AbstractEventLoop], executor: loopline.Executor, finish: Callable[[int], None]
) -> None:
    grid, loop = small
    grid.holds, grid.makes_tasks = True, 2
    futures = executor._map(abs, [(-number,) for number in range(4)], 1)[0]
    until(lambda: executor.jobs)
    finish(1)
    assert [future.result(60) for future in futures[:2]] == [0, 1]
    asyncio.run_coroutine_threadsafe(grid.hang_up(), loop).result(60)
    until(lambda: "follow 1 2.0@2" in grid.asked)
    grid.makes_tasks = None
    finish(1)
    assert [future.result(60) for future in futures] == [0, 1, 2, 3]


def test_a_link_that_was_silent_for_long_is_not_an_absent_master(
    small: tuple[SmallGrid, asyncio.AbstractEventLoop],
    finish: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (grid, loop), late_s = small, 0.0
    grid.holds = True
    monkeypatch.setattr(http, "time", types.SimpleNamespace(monotonic=lambda: time.monotonic() + late_s))
    with loopline.Executor(grid.url, "t", patience_s=30) as executor:
        future = executor.submit(abs, -1)
        until(lambda: future.task)
        late_s = 1000.0  # the call takes long
        asyncio.run_coroutine_threadsafe(grid.hang_up(), loop).result(60)
        until(lambda: "follow 1 " in grid.asked or future.done())
        finish(1)
        assert future.result(60) == 1


def test_a_submission_whose_answer_was_lost_is_sent_again_as_the_same(
    executor: loopline.Executor, grid: SmallGrid
) -> None:
    grid.hangs_up_at_submission = True
    assert executor.submit(abs, -3).result(60) == 3
    assert grid.asked.count("submit") == 2
    assert len(grid.jobs) == 1


@pytest.mark.parametrize("code", [1002, 1009])
def test_message_that_closes_the_link_is_not_sent_forever(
    executor: loopline.Executor, grid: SmallGrid, code: int
) -> None:
    grid.closes_with = code
    with pytest.raises(LooplineError, match="takes no more of this"):
        executor.submit(abs, -1).result(60)
    grid.closes_with = None
    assert executor.submit(abs, -1).result(60) == 1
    assert grid.asked.count("submit") == 2


def test_a_master_that_is_busy_is_asked_again(executor: loopline.Executor, grid: SmallGrid) -> None:
    grid.is_busy = True
    assert executor.submit(abs, -3).result(60) == 3
    assert grid.asked.count("submit") == 2


def test_an_exception_is_raised_with_where_it_came_from(executor: loopline.Executor) -> None:
    future = executor.submit(lambda: 1 / 0)
    assert isinstance(future.exception(60), ZeroDivisionError)
    assert str(future.exception().__cause__) == '\n"""\nTraceback: there"""'  # type: ignore[union-attr]


def test_packages_that_no_worker_installs_are_refused_at_once(grid: SmallGrid) -> None:
    executor = loopline.Executor(grid.url, requirements=["tabulate"])
    with executor, pytest.raises(LooplineError, match="no worker installs Python packages"):
        executor.submit(abs, -1).result(60)
    assert "submit" not in grid.asked


def test_a_traceback_shows_the_lines_of_files_that_the_worker_has_not(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f():\n    return 1 / 0\n")
    frame, lost = f'  File "{tmp_path}/mine.py", line 2, in f\n', '  File "/nowhere/else.py", line 2, in g\n'
    theirs = '  File "/usr/lib/there.py", line 9, in h\n    return one(call)\n           ^^^^^^^^^\n'
    end = "ZeroDivisionError: division by zero\n"
    assert with_source(theirs + lost + frame + end) == f"{theirs}{lost}{frame}    return 1 / 0\n{end}"


def test_pickling_error_is_set_on_the_future(executor: loopline.Executor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(print, threading.Lock()).result(60)


def test_large_arguments_and_values_are_files(executor: loopline.Executor, grid: SmallGrid) -> None:
    data = bytes(100_000)
    assert executor.submit(lambda x: x + x, data).result(60) == data + data
    assert grid.jobs[1].calls[0].startswith("sha256:")


def test_results_come_as_they_are_ready(
    executor: loopline.Executor, grid: SmallGrid, finish: Callable[[int], None]
) -> None:
    grid.holds = True
    slow, quick = executor.submit(abs, -1), executor.submit(len, "ab")
    until(lambda: len(grid.jobs) == 2)
    jobs = {
        future.task.job: future for future in (slow, quick) if future.task or until(lambda f=future: f.task) is None
    }
    finish(quick.task.job)  # type: ignore[union-attr]
    done, waiting = concurrent.futures.wait(jobs.values(), 60, return_when=concurrent.futures.FIRST_COMPLETED)
    assert (done, waiting) == ({quick}, {slow})
    finish(slow.task.job)  # type: ignore[union-attr]
    assert slow.result(60) == 1


def test_job_is_cancelled_when_none_of_its_futures_is_wanted(executor: loopline.Executor, grid: SmallGrid) -> None:
    grid.holds = True
    futures = executor._map(abs, [(number,) for number in range(3)], 1)[0]  # one job, however busy this computer
    until(lambda: all(future.task for future in futures))
    assert futures[0].cancel()
    assert futures[1].cancel()
    assert "POST /jobs/1/cancel" not in grid.asked
    assert futures[2].cancel()
    until(lambda: "POST /jobs/1/cancel" in grid.asked)
    with pytest.raises(concurrent.futures.CancelledError):
        futures[0].result(60)


def test_a_map_that_is_not_taken_to_its_end_is_cancelled(executor: loopline.Executor, grid: SmallGrid) -> None:
    grid.holds = True
    results = executor.map(abs, range(3), timeout=0.1)
    until(lambda: "submit" in grid.asked)  # a cancelled call is never sent
    with pytest.raises(TimeoutError):
        list(results)
    until(lambda: "POST /jobs/1/cancel" in grid.asked)


def test_a_call_that_is_cancelled_before_it_is_sent_never_is(grid: SmallGrid) -> None:
    with loopline.Executor(grid.url, "t") as executor:
        grid.is_slow.set()
        first = executor.submit(abs, -1)
        until(lambda: "submit" in grid.asked)
        assert executor.submit(abs, -2).cancel()
        last = executor.submit(abs, -3)
        grid.is_slow.clear()
        assert [first.result(60), last.result(60)] == [1, 3]
    assert [len(job.calls) for job in grid.jobs.values()] == [1, 1]


def test_cancellation_by_another_client_is_an_error(executor: loopline.Executor, grid: SmallGrid) -> None:
    grid.holds = True
    future = executor.submit(abs, -1)
    until(lambda: future.task)
    with loopline.Client(grid.url, "t") as client:
        client.cancel(1)
    with pytest.raises(loopline.CallError, match="cancelled"):
        future.result(60)


def test_attaching_to_a_job_by_its_number(grid: SmallGrid, finish: Callable[[int], None]) -> None:
    grid.holds = True
    with loopline.Executor(grid.url, "t") as first:
        values = first.map(abs, [0, -1, -2, -3])
        until(lambda: first.jobs)
        with loopline.Executor(grid.url, "t") as second:
            again = second.attach(1)
            finish(1)
            assert [future.result(60) for future in again] == list(values) == [0, 1, 2, 3]


def test_attached_own_job_stays_open_for_its_creator(grid: SmallGrid, finish: Callable[[int], None]) -> None:
    grid.holds = True
    with loopline.Executor(grid.url, "t") as executor:
        future = executor.submit(abs, -1)
        until(lambda: future.task)
        again = [executor.attach(1)[0] for _ in range(2)]
        finish(1)
        assert [one.result(60) for one in (future, *again)] == [1, 1, 1]


def test_shut_down(grid: SmallGrid) -> None:
    grid.holds = True
    executor = loopline.Executor(grid.url, "t")
    future = executor.submit(abs, -1)
    executor.shutdown(wait=True, cancel_futures=True)
    assert future.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)
    executor.shutdown()  # again does nothing


def test_call_cancelled_while_being_sent_is_cancelled_at_the_master(grid: SmallGrid) -> None:
    grid.holds = True
    executor = loopline.Executor(grid.url, "t")
    executor.map(abs, range(3))
    executor.shutdown(cancel_futures=True)
    assert {job.state.value for job in grid.jobs.values()} <= {"cancelled"}


def test_a_master_that_stays_away_is_an_error(small: tuple[SmallGrid, asyncio.AbstractEventLoop]) -> None:
    grid, loop = small
    grid.holds = True
    with loopline.Executor(grid.url, "t", patience_s=0.2) as executor:
        futures = [executor.submit(abs, -number) for number in range(2)]
        until(lambda: all(future.task for future in futures))
        asyncio.run_coroutine_threadsafe(grid.leave(), loop).result(60)
        for future in futures:
            with pytest.raises(loopline.LooplineError, match="it is away"):
                future.result(60)


def test_without_waiting_results_still_come(grid: SmallGrid) -> None:
    executor = loopline.Executor(grid.url, "t")
    future = executor.submit(abs, -1)
    executor.shutdown(wait=False)
    assert future.result(60) == 1


@pytest.mark.parametrize(
    ("pythons", "message"),
    [(["3.12", "3.12", None], r"they run 3.12 on w0, w1; none \(no cloudpickle there\) on w2"), ([None], "none")],
)
def test_no_worker_has_this_python(grid: SmallGrid, pythons: list[str | None], message: str) -> None:
    grid.pythons = pythons
    with (
        loopline.Executor(grid.url, "t") as executor,
        pytest.raises(loopline.LooplineError, match=message) as caught,
    ):
        executor.submit(abs, -1).result(60)
    assert "cloudpickle" in caught.value.hint
    assert not grid.jobs


def test_modules_of_ones_own_are_carried_along(grid: SmallGrid, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "my_module.py").write_text("def treble(x):\n    return 3 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_module  # type: ignore[import-not-found]

    assert isinstance(my_module, types.ModuleType)
    assert b"my_module" in calls.pickled(my_module.treble)
    with loopline.Executor(grid.url, "t", modules=[my_module]) as executor:
        grid.holds = True
        future = executor.submit(my_module.treble, 2)
        until(lambda: grid.jobs)
        monkeypatch.delitem(__import__("sys").modules, "my_module")
        (tmp_path / "my_module.py").unlink()
        assert grid.jobs[1].spec.function
        file = grid.files[grid.jobs[1].spec.function.file[7:]]
        assert call_loop.SubmittedFunction(file).for_call()(2) == 6
        future.cancel()
