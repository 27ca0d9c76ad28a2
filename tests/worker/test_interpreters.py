"""Consecutive calls in one interpreter: no call affects the next one."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from loopline_shared.model import Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core.events import AttemptEnded, Event
from loopline_worker.functions import function_call
from loopline_worker.functions.program import call_loop
from tests.worker.bench import until
from tests.worker.caller import Caller, ends_of, value_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # interpreters cannot import this file


def as_soon_as(caller: Caller, first: Run, second: Run) -> None:
    """Start one run when the other has ended."""
    runner = caller.bench.runner
    post = runner._post

    def post_and_start(event: Event) -> None:
        post(event)
        if isinstance(event, AttemptEnded) and event.result.attempt == first.attempt:
            asyncio.get_running_loop().call_soon(runner.start, second)

    runner._post = post_and_start


async def test_an_interpreter_that_was_killed_answers_no_other_call(caller: Caller) -> None:
    """Its answer was not read: its call is given back, and the interpreter is killed although it has answered."""

    def talk(count: int) -> int:
        print("x" * count)
        return count

    assert await caller.value(talk, 1) == 1
    spool, away = caller.bench.folder / "spool", caller.bench.folder / "away"
    first, second = caller.run(talk, 10_000), caller.run(talk, 2)
    as_soon_as(caller, first, second)
    spool.rename(away)
    caller.bench.runner.start(first)
    assert (await caller.bench.end_of(first)).outcome is Outcome.GIVEN_BACK
    if not spool.exists():
        away.rename(spool)
    end = await caller.bench.end_of(second)
    assert "killed" not in end.reason


async def test_long_value_belongs_to_its_call_only(caller: Caller) -> None:
    def big(count: int) -> bytes:
        import time

        if not count:
            time.sleep(100)
        return b"A" * count

    await caller.call(big, 1)
    whole = await caller.bench.result(caller.chunk(big, (50_000,), (50_000,)))
    assert whole.value
    assert whole.value.sha256
    late = await caller.bench.result(caller.chunk(big, (0,), (50_000,), timeout_s=0.5))
    assert (late.outcome, late.value) == (Outcome.FAILED, None)


async def test_removed_folder_is_not_used_by_the_next_call(caller: Caller) -> None:
    """The folder of a call with outputs."""

    def write(number: int) -> int:
        import os

        with open("own", "w") as stream:  # noqa: PTH123
            stream.write("1")
        os.unlink("own")  # noqa: PTH108
        return number

    await caller.call(write, 0)
    for number in range(20):
        first, second = caller.run(write, number, outputs=("x",)), caller.run(write, number)
        as_soon_as(caller, first, second)
        caller.bench.runner.start(first)
        assert (await caller.bench.end_of(second)).outcome is Outcome.SUCCEEDED


def test_an_empty_folder_is_known_by_its_times_once_these_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / ".tmp"
    inner.mkdir()
    looks: list[str] = []
    look = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: looks.append(folder) or look(folder))

    def is_clean() -> tuple[bool, bool]:
        """Return whether the folder is clean, and whether it was read."""
        looks.clear()
        return call_loop._is_clean(str(tmp_path)), bool(looks)

    def set_times(ago_s: float) -> None:
        for folder in (inner, tmp_path):
            os.utime(folder, (at := time.time() - ago_s, at))

    set_times(-3600)  # so that they stay young
    young = tmp_path.stat().st_mtime_ns
    assert [is_clean(), is_clean()] == [(True, True)] * 2
    (tmp_path / "left").touch()
    os.utime(tmp_path, ns=(young, young))  # as if several changes had the same time
    assert is_clean() == (False, True)
    (tmp_path / "left").unlink()
    set_times(10)
    assert [is_clean(), is_clean()] == [(True, True), (True, False)]
    for place in (inner, tmp_path):
        (place / "left").touch()
        assert is_clean() == (False, True)
        (place / "left").unlink()
        assert is_clean() == (True, True)
    inner.rmdir()
    assert is_clean() == (False, False)


@pytest.mark.parametrize("changes", [{}, {"B": "another"}])
def test_only_changed_variables_are_set(changes: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the previous call has changed any: then all are set."""
    given: list[bytes] = []
    one_by_one = call_loop._set
    monkeypatch.setattr(call_loop, "_set", lambda name, value: given.append(name) or one_by_one(name, value))
    monkeypatch.setenv("B", "")
    for number in ("1", "2"):
        given.clear()
        call_loop._set_environment({"LOOPLINE_A": number, "LOOPLINE_B": "same"})
        if number == "1":
            os.environ.update(changes)
    assert sorted(given) == [b"LOOPLINE_A", b"LOOPLINE_B"][: 2 if changes else 1]
    assert (os.environ.pop("LOOPLINE_A"), os.environ.pop("LOOPLINE_B")) == ("2", "same")


async def test_long_environment_is_sent_once(caller: Caller) -> None:
    def long() -> int:
        import os

        return len(os.environ["A"])

    environment = {"A": "é" * 50_000}
    assert [await caller.value(long, environment=environment) for _ in range(2)] == [50_000, 50_000]


@pytest.mark.campaign
async def test_too_deeply_nested_answer_is_rejected(caller: Caller) -> None:
    def forge(depth: int) -> None:
        import os
        import stat
        import time

        reason = b"[" * depth + b"]" * depth
        answer = b'{"exit_code": 7, "reason": ' + reason + b', "cpu_s": 0, "peak_memory_bytes": 1}'
        for file in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(file).st_mode):
                    os.write(file, answer + b"\n")
            except OSError:
                continue
        time.sleep(1000)

    for depth in range(sys.getrecursionlimit() - 80, sys.getrecursionlimit() - 20, 4):
        await caller.call(lambda: 1)
        assert (await caller.call(forge, depth)).outcome is Outcome.FAILED


async def test_interpreter_ends_if_its_value_cannot_be_stored(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def big(count: int) -> bytes:
        return b"A" * count

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    await caller.call(big, 1)
    monkeypatch.setattr(function_call, "write_file", full)
    result = await caller.bench.result(caller.chunk(big, (50_000,), (50_000,)))
    assert result.outcome is Outcome.GIVEN_BACK
    await until(lambda: not caller.warm.interpreters._all)


async def test_truncated_descriptors_do_not_affect_other_calls(caller: Caller) -> None:
    """A function opens /dev/stdout for writing, like a shell's ``>``, or truncates all open files and results."""

    def write(how: str) -> str:
        import os
        import sys

        if how == "by name":
            os.system("echo to stdout > /dev/stdout; echo to stderr > /dev/stderr")
        elif how == "all":
            for file in range(1, 20):
                try:
                    os.ftruncate(file, 0)
                except OSError:
                    continue
        print(how)
        print(how, file=sys.stderr)
        return how

    for how in ("plain", "by name", "by name", "plain", "all", "plain"):
        result = await caller.call(write, how)
        expected = ["to stdout\n", "to stderr\n"] if how == "by name" else ["", ""]
        assert [result.stdout.data.decode(), result.stderr.data.decode()] == [f"{one}{how}\n" for one in expected]
        assert value_of(result) == how
    for how in ("all", "plain"):
        whole = await caller.bench.result(caller.chunk(write, (how,), (how,)))
        assert (whole.outcome, ends_of(whole)[-1]) == (Outcome.SUCCEEDED, (0, how))


async def test_interpreter_frozen_during_a_fetch_serves_the_next_call(caller: Caller) -> None:
    """The owner returned during the fetch, and the call was given back."""

    def answer(number: int) -> int:
        return number

    assert await caller.value(answer, 1) == 1
    real, is_asked = caller.files.hold, asyncio.Event()

    @asynccontextmanager
    async def hold(sha256: str) -> AsyncIterator[Path]:
        is_asked.set()
        await asyncio.sleep(100)
        yield Path(sha256)

    caller.files.hold = hold  # type: ignore[method-assign]
    lost = caller.run(lambda: 2)
    caller.bench.runner.start(lost)
    await is_asked.wait()
    caller.bench.runner.freeze(lost.attempt)
    caller.files.hold = real  # type: ignore[method-assign]
    following = caller.run(answer, 3, timeout_s=50.0)
    as_soon_as(caller, lost, following)
    caller.bench.runner.cancel(lost.attempt, Outcome.GIVEN_BACK)
    assert (await caller.bench.end_of(following)).outcome is Outcome.SUCCEEDED
