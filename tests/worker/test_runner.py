"""Attempts as real processes: their environment, their stored output, their ends."""

import asyncio
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.files.staging import Inputs
from loopline_worker.files.task_files import TaskFiles
from tests.worker.bench import Bench, processes_of, python, run_of, until


async def test_output_and_exit_code_are_recorded(bench: Bench) -> None:
    result = await bench.result(run_of("sh", "-c", "echo out; echo err >&2; exit 3"))
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.FAILED, 3, "err")
    assert (result.stdout.data, result.stderr.data) == (b"out\n", b"err\n")
    assert (result.stdout.size_bytes, result.stdout.cut, result.stdout.sha256) == (4, False, None)
    assert result.wall_s > 0
    assert result.peak_memory_bytes > 0


async def test_success_is_exit_code_zero(bench: Bench) -> None:
    result = await bench.result(run_of("true"))
    assert (result.outcome, result.exit_code) == (Outcome.SUCCEEDED, 0)


async def test_signal_is_a_negative_exit_code(bench: Bench) -> None:
    result = await bench.result(run_of("sh", "-c", "kill -SEGV $$"))
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, -11)


async def test_reason_of_a_sigkill_mentions_lack_of_memory(bench: Bench) -> None:
    result = await bench.result(run_of("sh", "-c", "kill -9 $$"))
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, -9)
    assert "lack of memory" in result.reason


@pytest.mark.parametrize(
    ("command", "exit_code", "reason"),
    [
        (("no-such-program",), 127, "cannot run no-such-program: No such file or directory"),
        (("/",), 126, "cannot run /: Permission denied"),
        (("a\0b",), 126, "null"),
        ((), 126, "an empty command"),
    ],
)
async def test_command_that_cannot_be_run_is_a_failure_of_the_job(
    bench: Bench, command: tuple[str, ...], exit_code: int, reason: str
) -> None:
    result = await bench.result(run_of(*command))
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, exit_code)
    assert reason in result.reason
    assert bench.troubles == []


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"#!/bin/sh\r\n", "its first line ends as on Windows (CRLF)"),
        (b"#!/no/such/python3 -u\n", "its interpreter /no/such/python3 is not here"),
    ],
)
async def test_script_whose_interpreter_is_not_there_is_not_called_missing(
    bench: Bench, tmp_path: Path, first: bytes, reason: str
) -> None:
    script = tmp_path / "run"
    script.write_bytes(first + b"echo hello\n")
    script.chmod(0o755)
    result = await bench.result(run_of(str(script)))
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 127)
    assert reason in result.reason


async def test_long_output_is_stored_as_a_file_named_by_its_hash(bench: Bench) -> None:
    result = await bench.result(python("print('x' * 50_000, end='')"))
    assert (result.stdout.size_bytes, result.stdout.cut, result.stdout.data) == (50_000, False, b"")
    assert result.stdout.sha256 == hashlib.sha256(b"x" * 50_000).hexdigest()
    file, no_file = bench.spool.output_files(result.attempt)
    assert file.read_bytes() == b"x" * 50_000
    assert not no_file.exists()


async def test_beginning_and_end_of_oversized_output_are_kept(bench: Bench) -> None:
    result = await bench.result(python("import sys; sys.stderr.write('y' * 3_000_000)"))
    assert (result.outcome, result.stderr.size_bytes, result.stderr.cut) == (Outcome.SUCCEEDED, 3_000_000, True)
    kept = b"y" * 50_000 + b"\n[... 2900000 bytes are not kept here ...]\n" + b"y" * 50_000
    assert result.stderr.sha256 == hashlib.sha256(kept).hexdigest()


async def test_long_output_of_a_cancelled_task_is_not_uploaded(bench: Bench) -> None:
    run = python("print('x' * 50_000, flush=True); open('begun', 'w'); import time; time.sleep(100)")
    await bench.begins(run)
    bench.runner.cancel(run.attempt)
    result = await bench.end_of(run)
    assert (result.outcome, result.stdout.cut, len(result.stdout.data)) == (Outcome.CANCELLED, True, 4096)
    assert not bench.spool.output_files(run.attempt)[0].exists()


THREADS = [
    *(f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "BLIS", "NUMBA", "RAYON", "JULIA")),
    "VECLIB_MAXIMUM_THREADS",
]


async def test_environment_is_the_documented_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    run = python(
        "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.path.isdir(os.environ['TMPDIR'])]))",
        parameters={"seed": 7}, environment={"MINE": "1", "LOOPLINE_TASK": "99"}, job_name="pi", slots=2,
    )  # fmt: skip
    result = await bench.result(run)
    environment, folder, has_tmp = json.loads(result.stdout.data)
    scratch = str(bench.scratch / "1.1.1")
    assert folder == scratch
    assert has_tmp
    tmp = f"{scratch}/.tmp"
    expected = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": scratch, "TMPDIR": tmp, "TEMP": tmp, "TMP": tmp,
        "MINE": "1", "LOOPLINE_JOB": "1", "LOOPLINE_JOB_NAME": "pi", "LOOPLINE_TASK": "1",
        "LOOPLINE_ATTEMPT": "1.1.1", "LOOPLINE_WORKER": "bench", "LOOPLINE_SLOTS": "2",
        "LOOPLINE_PARAMETERS": '{"seed": 7}', "LOOPLINE_SCRATCH": scratch,
        "LOOPLINE_RESULT": f"{tmp}/result.json", "LOOPLINE_PROGRESS": f"{tmp}/progress",
        **dict.fromkeys(THREADS, "2"),
    }  # fmt: skip
    assert {
        name: value for name, value in environment.items() if name not in ("LC_CTYPE", "LC_ALL", "TZ")
    } == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {}),
        ({"MKL_NUM_THREADS": "8"}, {"MKL_NUM_THREADS": "8"}),
        ({"OMP_NUM_THREADS": "8"}, dict.fromkeys(THREADS, "8")),
        ({"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "4"}, dict.fromkeys(THREADS, "8") | {"MKL_NUM_THREADS": "4"}),
    ],
)
async def test_thread_counts_of_libraries_follow_the_slots_unless_set(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    run = python("import json, os; print(json.dumps(dict(os.environ)))", environment=own, slots=3)
    environment = json.loads((await bench.result(run)).stdout.data)
    assert {name: environment[name] for name in THREADS} == dict.fromkeys(THREADS, "3") | expected


@pytest.mark.parametrize(
    ("written", "metrics"),
    [
        ('{"loss": 0.5, "n": 3}', {"loss": 0.5, "n": 3}),
        ("", None),
        ('{"loss": "low"}', None),
        ('{"loss": NaN}', None),
        ('{"": 1}', None),
        ('{"loss": 0.5}' + " " * 20_000, None),
    ],
    ids=["numbers", "empty", "text", "no number", "no name", "too long"],
)
async def test_metrics_are_read_from_the_result_file(
    bench: Bench, written: str, metrics: dict[str, float] | None
) -> None:
    result = await bench.result(run_of("sh", "-c", f"printf '%s' '{written}' > $LOOPLINE_RESULT"))
    assert (result.outcome, result.metrics) == (Outcome.SUCCEEDED, metrics)
    assert ("LOOPLINE_RESULT" in result.reason) is (metrics is None)


async def test_result_file_behind_a_link_is_not_read(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"pin": 1234}')
    result = await bench.result(run_of("sh", "-c", f"ln -s {tmp_path}/secret $LOOPLINE_RESULT"))
    assert (result.metrics, "LOOPLINE_RESULT" in result.reason) == (None, True)


async def test_stdin_is_empty(bench: Bench) -> None:
    result = await bench.result(run_of("cat"))
    assert (result.outcome, result.stdout.size_bytes) == (Outcome.SUCCEEDED, 0)


async def test_no_file_of_the_agent_is_open_in_a_task(bench: Bench) -> None:
    result = await bench.result(run_of("sh", "-c", "ls /proc/$$/fd"))
    assert result.stdout.data.split() == [b"0", b"1", b"2"]


async def test_scratch_folder_is_removed_even_if_the_task_locked_it(bench: Bench) -> None:
    run = run_of("sh", "-c", "mkdir -p a/b; echo x > a/b/c; chmod 0 a/b a")
    await bench.result(run)
    await until(lambda: not (bench.scratch / str(run.attempt)).exists())


async def test_timeout_is_a_failure_with_a_reason(bench: Bench) -> None:
    result = await bench.result(run_of("sleep", "100", timeout_s=0.2))
    assert (result.outcome, result.reason) == (Outcome.FAILED, "timed out after 0.2 s")
    assert result.exit_code in (-15, -9), "killed at once if it has not begun by then"


SAVES = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


async def runs(bench: Bench, script: str, **more: Any) -> Run:
    """Start a task and wait until it has set its traps."""
    run = replace(run_of("sh", "-c", script), **more)
    bench.runner.start(run)
    assert await bench.runner.read(run.attempt, "stdout", 0, 100) == b"ready\n"
    return run


async def test_task_has_time_to_save_when_its_time_is_over(bench: Bench) -> None:
    run = await runs(bench, SAVES, timeout_s=600.0, kill_after_s=600.0)
    bench.runner._attempts[run.attempt]._on_timeout()
    result = await bench.end_of(run)
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.FAILED, 0, "timed out after 600 s")
    assert result.stdout.data == b"ready\nsaved\n"


async def test_task_is_killed_when_its_time_to_save_is_over(bench: Bench) -> None:
    run = await runs(bench, DEAF, timeout_s=600.0, kill_after_s=0.1)
    bench.runner._attempts[run.attempt]._on_timeout()
    result = await bench.end_of(run)
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.FAILED, -9, "timed out after 600 s")


async def test_gently_cancelled_task_counts_as_cancelled(bench: Bench) -> None:
    run = await runs(bench, SAVES, kill_after_s=600.0)
    bench.runner.cancel(run.attempt, gently=True)
    result = await bench.end_of(run)
    assert (result.outcome, result.exit_code, result.stdout.data) == (Outcome.CANCELLED, 0, b"ready\nsaved\n")


@pytest.mark.parametrize("how", ["at once", "frozen before", "frozen then", "no time", "told again"])
async def test_task_has_no_time_where_the_owner_or_another_result_needs_the_slot(bench: Bench, how: str) -> None:
    run = await runs(bench, DEAF, kill_after_s=0.0 if how == "no time" else 600.0)
    if how == "frozen before":
        bench.runner.freeze(run.attempt)
    bench.runner.cancel(run.attempt, gently=how != "at once")
    if how == "frozen then":
        bench.runner.freeze(run.attempt)
    if how == "told again":
        bench.runner.cancel(run.attempt)
    result = await bench.end_of(run)
    assert (result.outcome, result.exit_code) == (Outcome.CANCELLED, -9)


async def test_run_can_be_cancelled_before_its_start(bench: Bench) -> None:
    run = run_of("sleep", "100")
    bench.runner.start(run)
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED


async def test_attempt_frozen_before_its_start_starts_when_thawed(bench: Bench) -> None:
    run = run_of("sh", "-c", "echo > begun")
    bench.runner.start(run)
    assert bench.runner.freeze(run.attempt), "nothing of it moves"
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.runner._attempts[run.attempt]._tree is None
    bench.runner.thaw(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.SUCCEEDED


async def test_attempt_cancelled_while_frozen_before_its_start_never_runs(bench: Bench) -> None:
    run = run_of("touch", str(bench.folder / "begun"))
    bench.runner.start(run)
    bench.runner.freeze(run.attempt)
    for _ in range(10):
        await asyncio.sleep(0)
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert not (bench.folder / "begun").exists()


@pytest.mark.parametrize("event", ["time limit", "cancel"])
async def test_task_that_has_ended_keeps_its_own_end(bench: Bench, event: str) -> None:
    """Its last process is gone, and its result is not there yet."""
    run = run_of("true", timeout_s=60.0)
    bench.runner.start(run)
    attempt = bench.runner._attempts[run.attempt]
    while not (attempt._tree and attempt._tree.has_ended):
        await asyncio.sleep(0)
    if event == "cancel":
        bench.runner.cancel(run.attempt)
    else:
        attempt._on_timeout()
    assert (await bench.end_of(run)).outcome is Outcome.SUCCEEDED


async def test_cancel_of_an_unknown_attempt_is_ignored(bench: Bench) -> None:
    bench.runner.cancel(AttemptId(9, 9, 9))


async def test_cpu_time_of_the_whole_tree_counts(bench: Bench) -> None:
    code = "import time\nwhile time.process_time() < 0.1: pass"
    twice = f"import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-S', '-c', {code!r}])"
    result = await bench.result(python(twice))
    assert result.cpu_s >= 0.2


async def test_usage_is_visible_while_a_task_runs(bench: Bench) -> None:
    run = python("open('begun', 'w')\nwhile True: pass")
    await bench.begins(run)

    def shows() -> bool:
        bench.runner.measure()
        return bench.runner.held(run.attempt).cpu_s > 0

    await until(shows)
    assert bench.runner.held(run.attempt).wall_s > 0


class UndetachableFiles(TaskFiles):
    """Files of a task whose linked inputs cannot be detached."""

    async def detach(self) -> None:
        raise OSError("the disk is gone")


async def test_failed_cleanup_does_not_affect_other_tasks(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def files_of(run: Run, folder: Path) -> TaskFiles:
        return UndetachableFiles(Inputs(run, folder, None, None), None, folder)  # type: ignore[arg-type]

    bench.runner._attempt_files = SimpleNamespace(files_of=files_of)  # type: ignore[assignment]
    runs = [run_of("true", task=task, outputs=("of-a-task-with-files",)) for task in (1, 2)]
    assert [(await bench.result(run)).outcome for run in runs] == [Outcome.GIVEN_BACK] * 2
    assert bench.troubles == ["cannot run a task here: the disk is gone"] * 2
    assert "cannot clean up after 1.1.1: the disk is gone" in caplog.text
    assert (await bench.result(run_of("true", task=3))).outcome is Outcome.SUCCEEDED


async def test_failed_scratch_folder_is_trouble_of_the_worker(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file where the folder should be")
    async with Bench(tmp_path) as bench:
        result = await bench.result(run_of("true"))
    assert result.outcome is Outcome.GIVEN_BACK
    assert "cannot run a task here" in result.reason
    assert result.took_down
    assert bench.troubles == [result.reason]


async def test_output_that_cannot_be_stored_is_trouble_of_the_worker(bench: Bench) -> None:
    run = python("print('x' * 50_000, flush=True); import time; time.sleep(100)")
    (bench.folder / "spool").rmdir()
    result = await bench.result(run)
    assert result.outcome is Outcome.GIVEN_BACK
    assert "cannot keep its output" in bench.troubles[0]
    assert result.took_down


async def test_close_gives_back_running_and_later_attempts(bench: Bench) -> None:
    running, late = run_of("sh", "-c", "echo > begun; sleep 100"), run_of("true", task=2)
    await bench.begins(running)
    await bench.runner.close("going home")
    bench.runner.start(late)
    for run in (running, late):
        result = await bench.end_of(run)
        assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "going home")
    assert processes_of(bench.folder) == []


async def test_run_without_its_row_fails_without_starting(bench: Bench) -> None:
    result = await bench.result(replace(run_of("sh", "-c", "touch {name}"), row_file="0" * 64))
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, None)
    assert "no longer has the job's row file" in result.reason


async def test_task_reads_numbers_where_its_command_has_the_text(bench: Bench) -> None:
    run = run_of("sh", "-c", "echo $LOOPLINE_PARAMETERS", parameters={"v": "3.10", "id": "007", "n": 1})
    assert (await bench.result(run)).stdout.data == b'{"v": 3.1, "id": "007", "n": 1}\n'
