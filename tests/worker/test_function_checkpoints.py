"""Functions that continue from checkpoints, by the whole agent."""

from __future__ import annotations

import base64
import hashlib
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

from loopline_shared.model import AttemptId, Function, Outcome, Result
from loopline_shared.protocol import chunks
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.protocol.worker_link import Run
from loopline_worker.settings import SandboxChoice
from tests.worker.bench import until
from tests.worker.caller import value_of
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, start
from tests.worker.test_checkpoints import SANDBOXES, end_of, has_taken, output_of, patient, resumption, stored, taken

__all__ = ["patient", "start"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the last checkpoint is taken")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as a script's functions and classes


@dataclass
class Count:
    """State of a class that only the script has."""

    step: int = 0


def count(more: int) -> tuple[int, int, str]:
    """Do ``more`` steps. Return the first step, the last step and LOOPLINE_RESUMED."""
    import os
    import time

    from loopline import checkpoint

    state = checkpoint.load(Count())
    assert isinstance(state, Count)
    begun = state.step
    while state.step < begun + more:
        time.sleep(0.02)  # the work
        state.step += 1
        print("step", state.step)
        with open(os.environ["LOOPLINE_PROGRESS"], "w") as file:  # noqa: PTH123
            file.write("0.63")
        checkpoint.save(state)
    return begun, state.step, os.environ["LOOPLINE_RESUMED"]


def call(master: SmallMaster, function: Callable[..., Any], *args: Any, number: int = 1, **order: Any) -> Run:
    """A Run that calls a function, with checkpoints as often as possible unless the order says otherwise."""
    content = chunks.function_file(cloudpickle.dumps(function))
    name = hashlib.sha256(content).hexdigest()
    master.blobs[name] = content
    arguments = base64.b64encode(cloudpickle.dumps((args, {}))).decode()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Run(
        AttemptId(1, 1, number), (), {"call": arguments}, {}, function=Function(f"sha256:{name}", python, "s"),
        checkpoint=CheckpointOrder(**{"every_s": 0.02, **order}),
    )  # fmt: skip


def check_is_uninterrupted(result: Result, resumed: str) -> None:
    assert result.outcome is Outcome.SUCCEEDED, result
    begun, step, times = value_of(result)
    assert begun > 0
    assert times == resumed
    assert result.stdout.data == output_of(step)


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_function_continues_after_a_kill_of_its_agent(
    master: SmallMaster, start: Start, sandbox: SandboxChoice
) -> None:
    worker = start(sandbox=sandbox)
    run = call(master, count, 10**9)
    await master.say(run)
    await has_taken(master, 2)
    await worker.crash()
    worker = start(sandbox=sandbox)
    assert (await end_of(master, run)).outcome is Outcome.GIVEN_BACK
    again = call(master, count, 20, number=2)
    await master.say(again)
    check_is_uninterrupted(await end_of(master, again), "1")
    await until(lambda: stored(worker) == [])


async def test_function_continues_on_another_computer(master: SmallMaster, start: Start) -> None:
    worker = start()
    await master.say(call(master, count, 10**9))
    await until(lambda: any(one.progress == 0.63 for one in taken(master)))
    one = taken(master)[-1]
    await worker.crash()
    start("other", name="w2")
    again = call(master, count, 20, number=2, resume=resumption(one))
    await master.say(again)
    check_is_uninterrupted(await end_of(master, again), "1")


async def test_function_saves_when_it_is_asked_to_end(master: SmallMaster, start: Start) -> None:
    """SIGTERM raises SystemExit in the function; output after its last save is dropped."""

    def waits() -> int:
        import time

        from loopline import checkpoint

        if state := checkpoint.load(0):
            return int(state)
        open("begun", "w").close()  # noqa: PTH123
        try:
            time.sleep(1000)  # until it is asked to end
        finally:
            print("saved")
            checkpoint.save(7)
            print("not saved")
        return 0

    worker = start()
    run = call(master, waits, every_s=1000.0)
    await master.say(run)
    await until(lambda: any((worker.folder / "scratch").glob("*/1.1.1/begun")))
    await worker.stop()
    worker.data_directory.close()
    assert (await end_of(master, run)).outcome is Outcome.GIVEN_BACK
    start()
    again = call(master, waits, number=2)
    await master.say(again)
    result = await end_of(master, again)
    assert (value_of(result), result.stdout.data) == (7, b"saved\n")


async def test_exception_of_a_function_with_checkpoints_has_its_reason(master: SmallMaster, start: Start) -> None:
    start()
    run = call(master, lambda: print("hello") or 1 / 0)
    await master.say(run)
    result = await end_of(master, run)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "ZeroDivisionError: division by zero")
    error, text = value_of(result)
    assert repr(pickle.loads(error)) == "ZeroDivisionError('division by zero')"
    assert text.count("File ") == 1
    assert result.stdout.data == b"hello\n"


async def test_function_with_checkpoints_ends_despite_a_running_thread(master: SmallMaster, start: Start) -> None:
    def leaves_a_thread() -> int:
        import threading

        threading.Thread(target=threading.Event().wait).start()
        print("hello")
        return 7

    start()
    run = call(master, leaves_a_thread)
    await master.say(run)
    result = await end_of(master, run)
    assert (value_of(result), result.stdout.data) == (7, b"hello\n")
