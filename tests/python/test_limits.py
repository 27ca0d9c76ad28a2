"""Arguments and values of every size arrive, and an error in the executor's loop is raised instead of waited for."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

import loopline
from loopline.functions import call_submitter, calls, submitted_jobs
from loopline.functions.call_link import CallLink
from loopline.functions.call_submitter import CallSubmitter
from loopline.functions.calls import LONGEST_INLINE_BYTES
from loopline_shared.model import INLINE_LIMIT_BYTES, MAX_INLINE_BYTES
from loopline_shared.row_lines import read_row, write_row
from loopline_shared.scalar import MAX_TEXT_CHARACTERS
from tests.python.small_grid import SmallGrid

BORDERS = {LONGEST_INLINE_BYTES, calls._ROWS_INLINE_BYTES, INLINE_LIMIT_BYTES, MAX_INLINE_BYTES}
SIZES = sorted({size + by for size in {*(2**n for n in range(8, 19)), *BORDERS} for by in (-1, 0, 1)})
"""Lengths of a pickle, around powers of two and around every limit that a call passes."""


@pytest.fixture
def executor(grid: SmallGrid) -> Iterator[loopline.Executor]:
    executor = loopline.Executor(grid.url, "t")
    yield executor
    executor.terminate()


def argument(size: int) -> bytes:
    """Return bytes that are, as the argument of a call, a pickle of this size."""
    content = bytes(size)
    while (excess := len(cloudpickle.dumps(((content,), {}))) - size) > 0:
        content = content[excess:]
    return content


def test_arguments_of_every_size_arrive(executor: loopline.Executor, grid: SmallGrid) -> None:
    assert executor.submit(len, b"").result(60) == 0  # the next call goes at once
    for size in SIZES:
        content = argument(size)
        assert executor.submit(len, content).result(60) == len(content)
    contents = [argument(size) for size in SIZES]
    assert list(executor.map(len, contents)) == [len(content) for content in contents]
    assert list(executor.map(len, contents, chunksize=3)) == [len(content) for content in contents]
    texts = [call for job in grid.jobs.values() for call in job.calls]
    assert max(map(len, texts)) == MAX_TEXT_CHARACTERS
    for text in texts:
        read_row(write_row({"call": text}))


def test_the_longest_argument_in_a_task_is_the_longest_parameter() -> None:
    assert len(base64.b64encode(bytes(LONGEST_INLINE_BYTES))) <= MAX_TEXT_CHARACTERS
    assert len(base64.b64encode(bytes(LONGEST_INLINE_BYTES + 1))) > MAX_TEXT_CHARACTERS


def fail(*_: Any, **__: Any) -> Any:
    raise ValueError("broken")


async def fail_later(*_: Any, **__: Any) -> Any:
    raise ValueError("broken")


PLACES: list[tuple[Any, str, Callable[..., Any]]] = [
    (CallSubmitter, "_posts_alone", fail),
    (CallSubmitter, "send", fail_later),
    (CallLink, "post", fail),
    (CallLink, "submit", fail_later),
    (call_submitter, "parameters_inline", fail),
    (call_submitter, "parameters_of", fail_later),
    (call_submitter, "spec_of", fail),
    (submitted_jobs, "content_of", fail_later),
    (submitted_jobs, "outcome_of", fail),
    (submitted_jobs.SubmittedJob, "begin", fail),
]


@pytest.mark.parametrize("calls_at_once", [1, 3])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize(("place", "name", "broken"), PLACES, ids=[name for _, name, _ in PLACES])
def test_an_error_in_the_loop_leaves_no_call_open(
    executor: loopline.Executor, monkeypatch: pytest.MonkeyPatch, calls_at_once: int, is_warm: bool,
    place: Any, name: str, broken: Callable[..., Any],
) -> None:  # fmt: skip
    """Calls have the error, or their value if there is another way; and the executor makes the next call."""
    if is_warm:
        assert executor.submit(bytes, 1).result(60) == b"\0"
    with monkeypatch.context() as patch:
        patch.setattr(place, name, broken)
        futures = [executor.submit(bytes, 10_000) for _ in range(calls_at_once)]
        errors = [future.exception(60) for future in futures]
    assert {str(error) for error in errors} <= {"broken", "None"}
    assert executor.submit(bytes, 1).result(60) == b"\0"
    executor.shutdown()


class Leaver:
    """Its pickle ends the process that loads it."""

    def __reduce__(self) -> Any:
        return sys.exit, (3,)


def test_a_value_that_ends_its_reader_is_an_error(executor: loopline.Executor) -> None:
    with pytest.raises(loopline.CallError, match="cannot be unpickled here: SystemExit"):
        executor.submit(Leaver).result(60)
    assert executor.submit(abs, -1).result(60) == 1
