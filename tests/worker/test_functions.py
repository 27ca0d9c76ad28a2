"""Functions in pooled interpreters: results, state between calls, ends of calls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import psutil
import pytest
from pydantic import TypeAdapter

from loopline_shared.errors import LooplineError
from loopline_shared.model import INLINE_LIMIT_BYTES, Function, Outcome, Output, Result
from loopline_shared.protocol import chunks, link_session
from loopline_shared.protocol.chunks import CRASHED, RAISED, RETURNED, ends
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import limits
from loopline_worker.attempts.fence import Fence
from loopline_worker.attempts.limits import Quota
from loopline_worker.functions import interpreter
from loopline_worker.functions import launcher as function_launcher
from loopline_worker.functions.append_files import file_of
from loopline_worker.functions.channel import Channel
from loopline_worker.functions.python import find as find_python
from loopline_worker.functions.results import read_result
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.launch import sandbox
from loopline_worker.link.link_quality import LinkQuality
from loopline_worker.settings import NetworkAccess, SandboxChoice
from tests.sandboxes import needs_bubblewrap
from tests.worker.bench import Bench, processes_of, run_of, until
from tests.worker.caller import Caller, ends_of, value_of

ROOT = Path(__file__).parents[2]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # interpreters cannot import this file


def own_pid() -> int:
    return os.getpid()


async def test_return_value_is_returned(caller: Caller) -> None:
    result = await caller.call(lambda x, y: {"sum": x + y}, 2, 3)
    assert (result.outcome, result.exit_code, value_of(result)) == (Outcome.SUCCEEDED, 0, {"sum": 5})
    assert result.cpu_s > 0
    assert result.peak_memory_bytes > 0


async def test_exception_is_returned_with_its_traceback(caller: Caller) -> None:
    def fail(seed: int) -> None:
        raise ValueError(f"bad seed {seed}")

    result = await caller.call(fail, 7)
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.FAILED, 1, "ValueError: bad seed 7")
    error, text = value_of(result)
    assert repr(pickle.loads(error)) == "ValueError('bad seed 7')"
    assert text.startswith("Traceback")
    assert text.count("File ") == 1, "the traceback has no frames of ours"


class OtherArgumentsError(Exception):
    """An exception with other arguments than Exception."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {code}")
        self.code = code


class AddsWordsError(ValueError):
    """An exception that changes its arguments."""

    def __init__(self, what: str) -> None:
        super().__init__(f"bad {what}")


@pytest.mark.parametrize(
    ("make", "text", "code"),
    [
        (lambda: OtherArgumentsError(7, "seed"), "seed: 7", 7),
        (lambda: AddsWordsError("seed"), "bad seed", None),
        (lambda: subprocess.CalledProcessError(3, "ls"), "Command 'ls' returned non-zero exit status 3.", None),
        (lambda: FileNotFoundError(2, "missing", "x"), "[Errno 2] missing: 'x'", None),
        (lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "'utf-8' codec can't decode byte 0x78", None),
        (lambda: ExceptionGroup("two", [OtherArgumentsError(1, "a"), KeyError("b")]), "two (2 sub-exceptions)", None),
    ],
)
async def test_exception_is_returned_with_its_class(
    caller: Caller, make: Callable[[], Exception], text: str, code: int | None
) -> None:
    def fail() -> None:
        raise make()

    made, _ = value_of(await caller.call(fail))
    back = pickle.loads(made)
    assert type(back) is type(make())
    assert str(back).startswith(text)
    assert back.args == make().args or isinstance(back, ExceptionGroup)
    assert getattr(back, "code", None) == code


async def test_message_of_an_exception_may_contain_any_text(caller: Caller) -> None:
    def fail() -> None:
        raise ValueError("a\0b\n\udcff" + "c" * 1000)

    result = await caller.call(fail)
    assert (result.outcome, result.reason[:17]) == (Outcome.FAILED, "ValueError: a b ?")
    assert TypeAdapter(Result).validate_json(TypeAdapter(Result).dump_json(result)) == result


NOT_A_NUMBER = b'{"exit_code": 0, "reason": "", "cpu_s": NaN, "peak_memory_bytes": 1}'


@pytest.mark.parametrize("answer", [b"[]", NOT_A_NUMBER, b""])
async def test_forged_answer_of_a_function_is_rejected(caller: Caller, answer: bytes) -> None:
    def forge(answer: bytes) -> None:
        import os
        import stat
        import time

        for file in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(file).st_mode):
                    os.write(file, answer + b"\n") if answer else os.close(file)
            except OSError:
                continue
        time.sleep(1000)

    result = await caller.call(forge, answer)
    assert (result.outcome, result.exit_code) != (Outcome.SUCCEEDED, 0)
    assert await caller.value(lambda: 1) == 1


async def test_cpu_time_reported_by_a_function_is_checked(caller: Caller) -> None:
    def boast(number: int) -> None:
        import sys

        sys.modules["__main__"]._used = lambda: {"cpu_s": 1e8 * (number + 1), "peak_memory_bytes": 1}  # type: ignore[attr-defined]

    results = [await caller.call(boast, number) for number in range(3)]
    assert [result.outcome for result in results] == [Outcome.SUCCEEDED] * 3
    assert sum(result.cpu_s for result in results) < 60
    assert caller.bench.runner.measure() < 60


async def test_a_line_that_cannot_be_read_ends_the_channel() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        waiting = asyncio.create_task(channel.next_reply())
        theirs.sendall(b"[" * 60_000 + b"\n")
        async with asyncio.timeout(60):
            assert await waiting is None
    assert not channel.is_open


async def test_failed_launch_of_an_interpreter_leaves_no_descriptor_open(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise OSError("no process left")

    made = []
    monkeypatch.setattr(socket, "socketpair", lambda pair=socket.socketpair: made.append(pair()) or made[-1])
    monkeypatch.setattr(caller.bench.launcher, "start", fail)
    result = await caller.call(own_pid)
    assert (result.outcome, result.reason) == (
        Outcome.GIVEN_BACK, "cannot call a function here: no process left",
    )  # fmt: skip
    assert [end.fileno() for end in made[-1]] == [-1, -1]


@pytest.mark.parametrize("what", ["argument", "value", "function"])
async def test_unpicklable_data_fails_with_a_reason(caller: Caller, what: str) -> None:
    def make_lock() -> object:
        import threading

        return threading.Lock()

    run = caller.run(make_lock)
    if what == "argument":
        run = run_of(**{**options_of(run), "parameters": {"call": base64.b64encode(b"junk").decode()}})
    elif what == "function":
        file = caller.files.add(chunks.function_file(b"junk"))
        run = run_of(**{**options_of(run), "function": Function(file=file, python="3.11", session="s")})
    result = await caller.bench.result(run)
    assert result.outcome is Outcome.FAILED
    assert "pickl" in result.reason


def options_of(run: Run) -> dict[str, Any]:
    return {"task": run.attempt.task, "parameters": run.parameters, "function": run.function}


async def test_one_interpreter_serves_a_session_and_no_other(caller: Caller) -> None:
    first, again = await caller.value(own_pid), await caller.value(own_pid)
    other = await caller.value(own_pid, session="another")
    limited = await caller.value(own_pid, memory_bytes=2**33)
    assert first == again
    assert len({first, other, limited}) == 3


async def test_equal_values_are_equal_pickles(caller: Caller) -> None:
    values = [await caller.call(lambda: {str(number) for number in range(50)}, session=name) for name in "ab"]
    assert values[0].value == values[1].value


async def test_modules_are_imported_once(caller: Caller) -> None:
    def is_there() -> bool:
        import sys

        was_there = "colorsys" in sys.modules
        import colorsys  # noqa: F401

        return was_there

    assert [await caller.value(is_there) for _ in range(2)] == [False, True]


async def test_each_call_has_its_own_output_folder_and_environment(caller: Caller) -> None:
    def speak(word: str) -> tuple[str, str, str]:
        import os
        import subprocess
        import sys
        import tempfile
        from pathlib import Path

        print(word)
        subprocess.run(["echo", "child of", word], check=True)
        print(word.upper(), file=sys.stderr)
        Path("mine").touch(exist_ok=False)
        return str(Path.cwd()), tempfile.gettempdir(), os.environ["LOOPLINE_TASK"]

    for number, word in enumerate(("one", "two"), 1):
        result = await caller.call(speak, word)
        assert result.stdout.data.decode().split("\n") == [f"child of {word}", word, ""]
        assert result.stderr.data.decode() == f"{word.upper()}\n"
        folder, temporary, task = value_of(result)
        assert folder.endswith(f"/1.{number}.1")
        assert temporary.startswith(folder)
        assert task == str(number)
        await until(lambda folder=folder: not Path(folder).exists())


def test_environment_of_many_calls_does_not_leak_memory() -> None:
    """As seen from Python, from C and from child processes."""
    program = """
import os, psutil, subprocess
from loopline_worker.functions.program.call_loop import _set_environment
os.environ["KEPT"] = "kept"
rounds = 3000
for number in [*range(rounds), "last"]:
    _set_environment({"WHAT": f"{number:>2000}", "LONG": f"{number:>9000}" if number == "last" else f"{number}"})
    if number == 100:
        before_bytes = psutil.Process().memory_info().rss
grown_bytes = psutil.Process().memory_info().rss - before_bytes
assert grown_bytes < rounds * 1000, grown_bytes
for name in "WHAT", "LONG":
    assert os.environ[name].strip() == "last"
print(subprocess.run("echo $WHAT $LONG $KEPT", shell=True, check=True, text=True, stdout=-1).stdout)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.stdout.strip(), done.stderr) == ("last last kept", "")


async def test_changed_environment_variables_are_reset_for_the_next_call(caller: Caller) -> None:
    """Variables that each call gets, even if their values equal those of the previous call."""

    def change() -> tuple[str | None, str | None, str]:
        import os
        import subprocess

        before = os.environ.get("LOOPLINE_WORKER"), os.environ.get("LOOPLINE_SLOTS")
        seen = subprocess.run("echo $LOOPLINE_WORKER $LOOPLINE_SLOTS", shell=True, check=True, text=True, stdout=-1)
        os.environ.pop("LOOPLINE_WORKER")
        os.environ["LOOPLINE_SLOTS"] = "changed"
        return *before, seen.stdout

    found = [await caller.value(change) for _ in range(3)]
    assert found == [(worker := found[0][0], "1", f"{worker} 1\n")] * 3
    assert worker


async def test_long_values_and_arguments_are_files(caller: Caller) -> None:
    arguments = caller.files.add(cloudpickle.dumps(((b"x" * 50_000,), {})))
    run = caller.run(lambda data: data + data)
    result = await caller.bench.result(run_of(**{**options_of(run), "parameters": {"call": arguments}}))
    assert result.value
    content = caller.bench.spool.value_file(result.attempt).read_bytes()
    assert pickle.loads(content) == b"x" * 100_000
    assert (result.value.sha256, result.value.size_bytes) == (hashlib.sha256(content).hexdigest(), len(content))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_arguments_are_not_truncated_on_a_full_disk(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            file_of(b"x" * 100_000, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def a_value(folder: Path, content: bytes) -> Path:
    (folder / ".tmp").mkdir(parents=True)
    (folder / ".tmp" / "value").write_bytes(content)
    return folder


async def test_each_call_of_a_task_has_its_own_result(caller: Caller) -> None:
    result = await caller.bench.result(caller.chunk(lambda x: 1 / x, (1,), (0,), (2,)))
    (one, value), (failed, (error, text)), (other, half) = ends_of(result)
    assert (one, value, failed, other, half) == (RETURNED, 1.0, RAISED, RETURNED, 0.5)
    assert isinstance(pickle.loads(error), ZeroDivisionError)
    assert text.startswith("Traceback")
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 1)
    assert result.reason == "1 of 3 calls failed; the first: ZeroDivisionError: division by zero"
    result = await caller.bench.result(caller.chunk(lambda x: x, (1,)))
    assert (result.outcome, result.reason, ends_of(result)) == (Outcome.SUCCEEDED, "", [(RETURNED, 1)])


@pytest.fixture
def ends_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an interpreter that crashes on a busy computer end by itself."""
    monkeypatch.setattr(interpreter, "_END_WITHIN_S", 60.0)


@pytest.mark.usefixtures("ends_late")
async def test_only_the_crashed_call_of_a_task_fails(caller: Caller) -> None:
    def crash_at(number: int, where: tuple[int, ...]) -> int:
        if number in where:
            import os

            os._exit(3)
        return number

    result = await caller.bench.result(caller.chunk(crash_at, *((number, (1, 4)) for number in range(5))))
    how = [how for how, _ in ends_of(result)]
    assert how == [RETURNED, CRASHED, RETURNED, RETURNED, CRASHED]
    assert [value for how, value in ends_of(result) if how == RETURNED] == [0, 2, 3]
    assert "exit code 3" in ends_of(result)[1][1]
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("2 of its calls crashed; the first: the Python process exited during the call")


async def test_results_before_a_time_limit_are_kept(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is advanced when the second call has started, however long the interpreter took to start."""
    begun, runner = tmp_path / "second-call", caller.bench.runner

    def stick_at(number: int, begun: str) -> None:
        import time
        from pathlib import Path

        if number == 2:
            Path(begun).touch()
            time.sleep(1000)

    slow = caller.chunk(stick_at, *((number, str(begun)) for number in (1, 2, 3)), timeout_s=600.0)
    runner.start(slow)
    await until(begun.exists)
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 600))
    await until(lambda: runner.freeze(slow.attempt))
    runner.thaw(slow.attempt)  # checks the clock
    result = await caller.bench.end_of(slow)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "timed out after 600 s")
    assert ends_of(result) == [(RETURNED, None)]


def babble() -> int:
    """Write to all open descriptors, including the interpreter's channel for results."""
    for file in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        try:
            if file > 2 and not os.fstat(file).st_nlink:
                os.write(file, b"x" * 100_000)
        except OSError:
            continue
    return 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows what is open so easily")
async def test_result_is_valid_even_if_a_function_writes_to_all_descriptors(caller: Caller) -> None:
    """A Report with an invalid result would be refused and sent again, forever."""
    result = await caller.call(babble)
    assert link_session.read_result(link_session.write_result(result)) == result


async def test_long_results_of_several_calls_are_a_file(caller: Caller) -> None:
    result = await caller.bench.result(caller.chunk(lambda x: bytes(x), (50_000,), (50_001,)))
    assert result.value
    assert result.value.sha256
    content = caller.bench.spool.value_file(result.attempt).read_bytes()
    assert [len(pickle.loads(text)) for _, _, text in ends(content)] == [50_000, 50_001]
    assert ends_of(await caller.bench.result(caller.chunk(lambda x: x, (1,)))) == [(RETURNED, 1)]


@pytest.mark.parametrize("place", [".tmp", "."])
async def test_long_results_are_not_written_behind_a_link(caller: Caller, tmp_path: Path, place: str) -> None:
    """A sandboxed function can only reach its folder: we must not follow its links when writing."""
    outside = a_value(tmp_path / "outside", b"the owner's")
    target = str(outside / place)

    def swap(size: int) -> bytes:
        mine = os.path.join(os.environ["LOOPLINE_SCRATCH"], place).removesuffix("/.")  # noqa: PTH118
        if not os.path.islink(mine):  # noqa: PTH114
            os.rename(mine, f"{mine}-away")  # noqa: PTH104
            os.symlink(target, mine)  # noqa: PTH211
        return bytes(size)

    result = await caller.bench.result(caller.chunk(swap, (50_000,), (50_001,)))
    assert (result.outcome, result.value) == (Outcome.SUCCEEDED, None)
    assert (outside / ".tmp" / "value").read_bytes() == b"the owner's"
    assert [each.name for each in (outside / ".tmp").iterdir()] == ["value"]
    assert caller.bench.troubles == []


async def test_long_results_are_kept_if_a_call_removed_its_folder(caller: Caller) -> None:
    def tidy(size: int) -> bytes:
        if os.path.isdir(".tmp"):  # noqa: PTH112
            os.rmdir(".tmp")  # noqa: PTH106
        return bytes(size)

    result = await caller.bench.result(caller.chunk(tidy, (50_000,), (50_001,)))
    assert result.value
    assert result.value.sha256


async def test_folder_is_empty_for_each_call_and_removed_at_the_end(caller: Caller) -> None:
    def look(leave: str) -> tuple[list[str], list[str], str]:
        import os
        from pathlib import Path

        found = os.listdir(), os.listdir(os.environ["TMPDIR"]), str(Path.cwd())  # noqa: PTH208
        if leave:
            Path(os.environ["HOME"] if leave == "home" else os.environ["TMPDIR"], "left").touch()
        return found

    folders = set()
    for leave in ("", "home", "", "temporary", "", ""):
        found, temporary, folder = await caller.value(look, leave)
        assert (found, temporary) == ([".tmp"], [])
        folders.add(folder)
    assert len(folders) == 6
    caller.warm.interpreters.close()
    await until(lambda: not any(caller.bench.scratch.glob("*/*")))


async def test_folder_removed_between_calls_is_recreated(caller: Caller) -> None:
    def where() -> str:
        return str(Path.cwd())

    folder = await caller.value(where)
    shutil.rmtree(folder)
    assert await caller.value(where) != folder


async def test_each_call_answers_for_its_own_memory(caller: Caller) -> None:
    usual, great, after = [
        (await caller.call(lambda size: len(bytearray(b"x") * size), size)).peak_memory_bytes
        for size in (1, 2**27, 1)
    ]
    assert great > 2**27 > after
    assert abs(after - usual) < 2**25


async def test_long_output_belongs_to_its_call_only(caller: Caller) -> None:
    result = await caller.call(lambda: print("x" * 3_000_000, end=""))
    assert (result.stdout.size_bytes, result.stdout.cut) == (3_000_000, True)
    assert caller.bench.spool.output_files(result.attempt)[0].stat().st_size == 100_000 + len(
        "\n[... 2900000 bytes are not kept here ...]\n"
    )
    result = await caller.call(lambda: print("short"))
    assert result.stdout.data == b"short\n"


async def test_output_of_a_running_call_can_be_followed(caller: Caller) -> None:
    def speak() -> None:
        import time
        from pathlib import Path

        print("first", flush=True)
        while not Path("enough").exists():
            time.sleep(0.001)

    run = caller.run(speak)
    caller.bench.runner.start(run)
    async with asyncio.timeout(60):
        assert await caller.bench.runner.read(run.attempt, "stdout", 0, 100) == b"first\n"
    (folder,) = caller.bench.scratch.glob("*/1.1.1")
    (folder / "enough").touch()
    assert (await caller.bench.end_of(run)).stdout.data == b"first\n"


async def test_closed_stdout_does_not_affect_the_next_call(caller: Caller) -> None:
    def close() -> None:
        import os

        os.close(1)
        os.close(2)

    await caller.call(close)
    assert (await caller.call(lambda: print("here"))).stdout.data == b"here\n"


@pytest.mark.parametrize("swapped", [".tmp", ".tmp/value", ""])
def test_value_behind_a_link_is_refused(tmp_path: Path, swapped: str) -> None:
    folder, outside = a_value(tmp_path / "call", b"mine"), a_value(tmp_path / "outside", b"the owner's")
    assert read_result(folder, tmp_path / "spool") == Output(4, data=b"mine")
    (folder / swapped).rename(tmp_path / "away")
    (folder / swapped).symlink_to(outside / swapped)
    assert read_result(folder, tmp_path / "spool") is None


def test_beginning_of_a_value_above_the_limit_is_kept(tmp_path: Path) -> None:
    folder = a_value(tmp_path / "call", b"x" * 10_000)
    whole = read_result(folder, tmp_path / "spool", limit_bytes=10_000)
    assert whole
    assert (whole.size_bytes, whole.cut, (tmp_path / "spool").stat().st_size) == (10_000, False, 10_000)
    cut = read_result(folder, tmp_path / "other", limit_bytes=9_999)
    assert cut == Output(10_000, cut=True, data=b"x" * INLINE_LIMIT_BYTES)
    assert not (tmp_path / "other").exists()


async def test_size_limit_of_values_is_enforced(tmp_path: Path) -> None:
    async with Bench(tmp_path, quota=Quota(value_bytes=5000)) as bench:
        caller = Caller(bench)
        result = await caller.call(lambda: b"x" * 5000)
        assert (result.outcome, result.value and result.value.cut) == (Outcome.SUCCEEDED, True)
        caller.warm.interpreters.close()
        await until(lambda: not processes_of(tmp_path))


@pytest.mark.usefixtures("ends_late")
@pytest.mark.parametrize(
    ("end", "reason"), [("os._exit(3)", "exit code 3"), ("os._exit(0)", "exit code 0"), ("os.abort()", "SIGABRT")]
)
async def test_call_after_a_crash_gets_a_new_interpreter(caller: Caller, end: str, reason: str) -> None:
    before = await caller.value(own_pid)
    result = await caller.call(lambda: exec(f"import os; {end}"))
    assert (result.outcome, result.value) == (Outcome.FAILED, None)
    assert "exited during the call" in result.reason
    assert reason in result.reason
    assert await caller.value(own_pid) != before


def whatever(what: str) -> object:
    import subprocess
    import time

    if what == "crash":
        os._exit(3)
    if what == "stray":
        subprocess.Popen(["sleep", "1000"])
    if what == "print":
        print("x" * 200_000, flush=True)
    if what == "leave":
        Path("left").touch()
    if what == "raise":
        raise ZeroDivisionError
    if what == "hang":
        time.sleep(1000)
    return "x" * INLINE_LIMIT_BYTES if what == "long" else what


@pytest.mark.usefixtures("ends_late")
@pytest.mark.parametrize(
    ("what", "outcome", "reason"),
    [
        ("", Outcome.SUCCEEDED, ""),
        ("long", Outcome.SUCCEEDED, ""),
        ("print", Outcome.SUCCEEDED, ""),
        ("leave", Outcome.SUCCEEDED, ""),
        ("stray", Outcome.SUCCEEDED, "1 processes that it left running were stopped"),
        ("raise", Outcome.FAILED, "ZeroDivisionError"),
        ("crash", Outcome.FAILED, "exit code 3"),
    ],
)
async def test_call_starts_at_once_on_an_idle_interpreter(
    caller: Caller, what: str, outcome: Outcome, reason: str
) -> None:
    await caller.value(whatever, "")
    run, (interpreter,) = caller.run(whatever, what), caller.warm.interpreters.idle
    caller.bench.runner.start(run)
    await asyncio.sleep(0)
    assert interpreter not in caller.warm.interpreters.idle
    result = await caller.bench.end_of(run)
    assert result.outcome is outcome
    assert reason in result.reason
    assert result.stdout.size_bytes == (200_001 if what == "print" else 0)
    assert await caller.value(whatever, "") == ""
    await until(lambda: not list(caller.bench.scratch.glob(f"*/{run.attempt}")))


async def test_call_on_an_idle_interpreter_can_be_cancelled_at_once(caller: Caller) -> None:
    await caller.value(whatever, "")
    run = caller.run(whatever, "hang")
    caller.bench.runner.start(run)
    await asyncio.sleep(0)  # the interpreter has the call
    caller.bench.runner.cancel(run.attempt)
    assert (await caller.bench.end_of(run)).outcome is Outcome.CANCELLED
    assert await caller.value(whatever, "") == ""


async def test_cancel_kills_the_process_tree_of_a_call(caller: Caller) -> None:
    def hang() -> None:
        import subprocess
        import time
        from pathlib import Path

        subprocess.Popen(["setsid", "sleep", "1000"])
        Path("begun").touch()
        time.sleep(1000)

    run = caller.run(hang)
    caller.bench.runner.start(run)
    await until(lambda: list(caller.bench.scratch.glob("*/*/begun")))
    caller.bench.runner.cancel(run.attempt)
    assert (await caller.bench.end_of(run)).outcome is Outcome.CANCELLED
    await until(lambda: not processes_of(caller.bench.folder))


async def test_call_can_be_cancelled_before_its_files_arrive(caller: Caller) -> None:
    is_asked = asyncio.Event()

    @asynccontextmanager
    async def never(sha256: str) -> AsyncIterator[Path]:
        is_asked.set()
        await asyncio.Event().wait()
        yield Path(sha256)

    caller.files.hold = never  # type: ignore[method-assign]
    run = caller.run(own_pid)
    caller.bench.runner.start(run)
    await is_asked.wait()
    caller.bench.runner.cancel(run.attempt)
    assert (await caller.bench.end_of(run)).outcome is Outcome.CANCELLED


async def test_call_is_killed_at_its_time_limit(caller: Caller) -> None:
    result = await caller.call(lambda: __import__("time").sleep(1000), timeout_s=0.2)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "timed out after 0.2 s")


def save_at_the_end(folder: str) -> None:
    """Tell that it runs, and write a file while it is left."""
    import time

    try:
        print("ready", flush=True)
        time.sleep(1000)
    finally:
        (Path(folder) / "saved").write_text("half a result")


async def ready(caller: Caller, run: Run) -> Run:
    """Start a call and wait until it runs."""
    caller.bench.runner.start(run)
    assert await caller.bench.runner.read(run.attempt, "stdout", 0, 100) == b"ready\n"
    return run


async def test_call_has_time_to_save_when_it_is_ended_gently(caller: Caller, tmp_path: Path) -> None:
    run = await ready(caller, caller.run(save_at_the_end, str(tmp_path), kill_after_s=600.0))
    caller.bench.runner.cancel(run.attempt, gently=True)
    result = await caller.bench.end_of(run)
    assert (result.outcome, result.value) == (Outcome.CANCELLED, None)
    assert (tmp_path / "saved").read_text() == "half a result"
    assert await caller.value(own_pid), "the next call has another interpreter"


async def test_chunk_ended_gently_keeps_earlier_results_and_starts_no_other_call(
    caller: Caller, tmp_path: Path
) -> None:
    def second_saves(number: int, folder: str) -> int:
        (Path(folder) / f"began-{number}").touch()
        if number == 2:
            save_at_the_end(folder)
        return number

    calls = ((number, str(tmp_path)) for number in (1, 2, 3))
    run = await ready(caller, caller.chunk(second_saves, *calls, kill_after_s=600.0))
    caller.bench.runner.cancel(run.attempt, Outcome.FAILED, "its time is over", gently=True)
    result = await caller.bench.end_of(run)
    assert (result.outcome, ends_of(result)) == (Outcome.FAILED, [(RETURNED, 1)])
    assert sorted(path.name for path in tmp_path.glob("*ed")) == ["saved"]
    assert not (tmp_path / "began-3").exists()


async def test_chunk_whose_interpreter_dies_of_sigterm_starts_no_other_call(caller: Caller, tmp_path: Path) -> None:
    def die(number: int, folder: str) -> None:
        import signal
        import time

        (Path(folder) / f"began-{number}").touch()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print("ready", flush=True)
        time.sleep(1000)

    run = await ready(caller, caller.chunk(die, *((number, str(tmp_path)) for number in (1, 2)), kill_after_s=600.0))
    caller.bench.runner.cancel(run.attempt, gently=True)
    assert (await caller.bench.end_of(run)).outcome is Outcome.CANCELLED
    assert not (tmp_path / "began-2").exists()


async def test_fenced_call_does_not_begin_after_its_term(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor would kill it, but only in a moment."""
    assert (await caller.call(own_pid)).outcome is Outcome.SUCCEEDED
    quality = LinkQuality(boot_s() - 100.0)
    caller.bench.runner._wings = (Fence(lambda: quality.answered_at),)
    begun, call = [], interpreter.Interpreter.call

    async def note(called: interpreter.Interpreter, *request: Any) -> Any:
        begun.append(called)
        return await call(called, *request)

    monkeypatch.setattr(interpreter.Interpreter, "call", note)
    result = await caller.call(own_pid, term_s=10.0)
    assert not begun
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "the master answered no Report for its whole term")
    quality.answered_at = boot_s()
    assert (await caller.call(own_pid, term_s=600.0)).outcome is Outcome.SUCCEEDED


def ignore_sigterm() -> None:
    import signal
    import time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(1000)


@pytest.mark.parametrize("gently", [False, True])
async def test_call_that_ignores_sigterm_is_killed(caller: Caller, gently: bool) -> None:
    run = await ready(caller, caller.run(ignore_sigterm, kill_after_s=0.1 if gently else 600.0))
    caller.bench.runner.cancel(run.attempt, gently=gently)
    assert (await caller.bench.end_of(run)).outcome is Outcome.CANCELLED


async def test_call_is_killed_at_its_memory_limit(tmp_path: Path) -> None:
    async with Bench(tmp_path, quota=Quota(task_memory_bytes=2**27)) as bench:
        caller = Caller(bench)
        result = await caller.call(lambda: [bytearray(b"x") * 2**28, __import__("time").sleep(1000)])
        assert result.outcome is Outcome.FAILED
        assert "more than 128 MiB of memory" in result.reason


async def test_processes_left_by_a_call_are_stopped(caller: Caller) -> None:
    before = await caller.value(own_pid)

    def leave() -> None:
        import subprocess

        subprocess.Popen(["sleep", "1000"])

    result = await caller.call(leave)
    assert result.outcome is Outcome.SUCCEEDED
    assert "1 processes that it left running were stopped" in result.reason
    assert await caller.value(own_pid) != before


async def test_frozen_call_continues_when_thawed(caller: Caller) -> None:
    def count() -> int:
        import time
        from pathlib import Path

        for number in range(10**9):
            Path("count").write_text(str(number))
            if Path("enough").exists():
                return 42
            time.sleep(0.001)
        return 0

    run, runner = caller.run(count), caller.bench.runner
    runner.start(run)
    await until(lambda: list(caller.bench.scratch.glob("*/*/count")))
    (folder,) = {file.parent for file in caller.bench.scratch.glob("*/*/count")}
    await until(lambda: runner.freeze(run.attempt))
    (folder / "enough").touch()
    assert runner.held(run.attempt).frozen
    assert run.attempt not in caller.bench.results
    runner.thaw(run.attempt)
    assert value_of(await caller.bench.end_of(run)) == 42


async def test_idle_interpreter_is_frozen_between_calls(caller: Caller) -> None:
    pid = await caller.value(own_pid)
    (interpreter,) = caller.warm.interpreters.idle
    await until(lambda: interpreter.is_frozen)
    await until(interpreter.tree.is_still)
    assert await caller.value(own_pid) == pid


async def test_idle_interpreters_end_when_their_slots_are_needed(caller: Caller) -> None:
    pids = [await caller.value(own_pid, session=name) for name in ("a", "b")]
    caller.warm.interpreters.keep(1)
    await until(lambda: not psutil.pid_exists(pids[0]))
    assert psutil.pid_exists(pids[1])
    caller.warm.interpreters.keep(0)
    await until(lambda: not processes_of(caller.bench.folder))
    await until(lambda: not list(caller.bench.scratch.iterdir()))


async def test_interpreter_between_two_calls_is_kept(caller: Caller) -> None:
    pid = await caller.value(own_pid)
    caller.warm.interpreters.keep(0, idle_s=60.0)
    assert await caller.value(own_pid) == pid


async def test_python_that_does_not_start_fails_with_a_hint(caller: Caller) -> None:
    result = await caller.call(own_pid, environment={"PYTHONHOME": "/nowhere"})
    assert result.outcome is Outcome.FAILED
    assert "the Python process could not start" in result.reason
    assert result.stderr.size_bytes > 0


async def test_missing_function_is_not_called(caller: Caller) -> None:
    run = caller.run(own_pid)
    gone = Function(file="sha256:" + "0" * 64, python="3.11", session="s")
    result = await caller.bench.result(run_of(**{**options_of(run), "function": gone}))
    assert (result.outcome, result.reason) == (
        Outcome.FAILED, "cannot run a function: the master has no such file",
    )  # fmt: skip


async def test_each_call_has_its_own_interpreter_if_files_cannot_be_passed(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_launcher, "PASSES_FILES", False)
    assert await caller.value(own_pid) != await caller.value(own_pid)
    result = await caller.call(lambda x: print("hello") or 1 / x, 0)
    assert (result.outcome, result.stdout.data) == (Outcome.FAILED, b"hello\n")
    assert "ZeroDivisionError" in value_of(result)[1]
    result = await caller.bench.result(caller.chunk(lambda x: 2 * x, (1,), (2,)))
    assert ends_of(result) == [(RETURNED, 2), (RETURNED, 4)]


@needs_bubblewrap
async def test_calls_run_in_a_sandbox(tmp_path: Path) -> None:
    async with Bench(tmp_path, sandbox=sandbox.open_sandbox(shows=[Path(sys.prefix)])) as bench:
        caller = Caller(bench)

        def look(folder: str) -> tuple[int, bool, bool]:
            from pathlib import Path

            Path("written").touch()
            return os.getpid(), Path(folder).exists(), os.access("/etc", os.W_OK)

        first, again = await caller.value(look, str(tmp_path / "files")), await caller.value(look, str(tmp_path))
        assert first[0] == again[0]
        assert first[1:] == (False, False) or not str(tmp_path).startswith("/tmp")
        caller.warm.interpreters.close()
        await until(lambda: not processes_of(tmp_path))


def script(file: Path, text: str) -> str:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def test_python_of_functions_is_chosen(tmp_path: Path) -> None:
    own = find_python(None)
    assert (own.program, own.functions) == (sys.executable, f"{sys.version_info.major}.{sys.version_info.minor}")
    other = find_python(script(tmp_path / "other", f'exec {sys.executable} "$@"'))
    assert (other.functions, Path(sys.prefix) in other.folders) == (own.functions, True)
    bare = find_python(script(tmp_path / "bare", f'exec {sys.executable} -S "$@"'))
    assert (bare.functions, bare.version) == (None, own.version)
    assert "cloudpickle" in bare.obstacle
    assert find_python(script(tmp_path / "broken", "exit 1")).functions is None
    with pytest.raises(LooplineError, match="no program no-such-python"):
        find_python("no-such-python")


async def test_functions_run_under_another_python(caller: Caller, tmp_path: Path) -> None:
    other = script(tmp_path / "other", f'WHO=other exec {sys.executable} "$@"')
    caller.warm.interpreters._python = (other,)
    assert await caller.value(lambda: __import__("os").environ.get("WHO")) == "other"


async def test_variables_of_every_length_reach_an_interpreter(caller: Caller) -> None:
    """A message longer than a socket buffer is sent as a file."""

    def length() -> int:
        return min(len(os.environ["LONG"]), len(os.environ["ALSO"]))

    for size in (2**n + by for n in (12, 13, 14, 15, 16) for by in (-600, 0)):
        environment = {"LONG": "x" * size, "ALSO": "x" * size}
        assert await caller.value(length, environment=environment) == size
        assert await caller.value(length, environment=environment) == size


def submit_by(way: str) -> None:
    import subprocess
    import sys

    import loopline

    at = "http://127.0.0.1:9", "t"
    if way == "executor":
        loopline.Executor(*at)
    elif way == "local grid":
        loopline.Executor.local(slots=1)
    elif way == "job":
        loopline.Client(*at).submit(["true"])
    elif way == "calls":
        loopline.Client(*at).map(abs, [1])
    else:
        code = f"import loopline; loopline.Executor(*{at})"
        started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        raise RuntimeError(started.stderr)


async def test_call_cannot_submit(caller: Caller) -> None:
    """It could wait for the slot that it occupies."""
    for way in ("executor", "local grid", "job", "calls", "process"):
        result = await caller.call(submit_by, way)
        assert "a function call cannot submit to the grid" in value_of(result)[1], way
        assert "submit those from your program" in value_of(result)[1], way


async def test_joblib_backend_uses_threads_within_a_call(caller: Caller) -> None:
    def nested() -> list[int]:
        import joblib

        import loopline

        loopline.joblib.register()
        with joblib.parallel_config("loopline", n_jobs=2):
            return list(joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(3)))

    assert await caller.value(nested) == [0, 1, 2]


@needs_bubblewrap
@pytest.mark.parametrize("access", [NetworkAccess.REQUESTED, NetworkAccess.GANGS, NetworkAccess.NONE])
async def test_call_without_a_network_gets_a_hint_if_useful(tmp_path: Path, access: NetworkAccess) -> None:
    def connect() -> None:
        raise OSError(101, "Network is unreachable")

    walls = sandbox.open_sandbox(SandboxChoice.BUBBLEWRAP, access, [Path(sys.prefix)])
    async with Bench(tmp_path, sandbox=walls) as bench:
        caller = Caller(bench)
        for _ in range(2):
            result = await caller.call(connect)
            assert "Network is unreachable" in result.reason
            assert ("requires: {network: true}" in result.reason) is (access is NetworkAccess.REQUESTED)
        caller.warm.interpreters.close()
        await until(lambda: not processes_of(tmp_path))


@needs_bubblewrap
async def test_unreachable_master_is_reported_at_once_in_a_sandbox(tmp_path: Path) -> None:
    def ask(url: str) -> str:
        import loopline

        try:
            with loopline.Client(url, "t", patience_s=10_000) as client:
                client.whoami()
        except loopline.LooplineError as error:
            return f"{error.message}; {error.hint}"
        return ""

    shown = [Path(sys.prefix), *(ROOT / part for part in ("client", "shared"))]
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with Bench(tmp_path, sandbox=sandbox.open_sandbox(shows=shown)) as bench:
            said = await Caller(bench).value(ask, f"http://127.0.0.1:{server.getsockname()[1]}")
    assert "Permission denied; tasks in a sandbox cannot connect to their own computer" in said


SCRIPT = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

FACTOR = 3


class Point:
    def __init__(self, x):
        self.x = x


def moved(point):
    return Point(point.x * FACTOR)


def in_a_pool(method):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        moved_one = pool.submit(moved, Point(2)).result()
        return isinstance(moved_one, Point), moved_one.x, list(pool.map(lambda n: n + FACTOR, [1]))
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
async def test_pool_in_a_call_runs_functions_of_the_script(caller: Caller, method: str) -> None:
    script = {"__name__": "__main__"}
    exec(SCRIPT, script)
    in_a_pool: Any = script["in_a_pool"]
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # the path of the fork server's socket is in it
        result = await caller.call(in_a_pool, method, environment={"TMPDIR": short})
    assert value_of(result) == (True, 6, [4])


class Counter:
    """An object that a call changes."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


async def test_each_call_has_the_function_as_it_was_submitted(caller: Caller) -> None:
    """In one interpreter, as separate tasks and in one chunk."""
    count, pid = Counter().count, await caller.value(own_pid)
    assert [await caller.value(count) for _ in range(3)] == [1, 1, 1]
    assert ends_of(await caller.bench.result(caller.chunk(count, (), (), ()))) == [(RETURNED, 1)] * 3
    assert await caller.value(own_pid) == pid


async def test_interpreters_drop_functions_not_used_recently(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropped functions are sent again, as long ones always are."""
    program = tmp_path / "call_loop.py"
    program.write_text(interpreter.PROGRAM.read_text().replace("_MOST_FUNCTIONS = 64", "_MOST_FUNCTIONS = 2"))
    monkeypatch.setattr(interpreter, "PROGRAM", program)
    functions = [partial(own_pid_and, number, b"") for number in range(4)]
    long = partial(own_pid_and, "long", b"x" * 2**20)
    found = [await caller.value(function) for function in [*functions, long, *functions, long, *functions]]
    assert [value for _, value in found] == [*range(4), "long", *range(4), "long", *range(4)]
    assert len({pid for pid, _ in found}) == 1
    (only,) = caller.warm.interpreters.idle
    assert len(only.functions) == 2


def own_pid_and(value: Any, _: bytes) -> tuple[int, Any]:
    return os.getpid(), value
