"""Attempts that wait at a worker, written as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from loopline_shared.model import AttemptId
from loopline_shared.protocol.attempt_ranges import MAX_ATTEMPTS, AttemptRanges, attempts_of, ranges_of

numbers = st.integers(1, 4)
adapter: TypeAdapter[AttemptRanges] = TypeAdapter(AttemptRanges)


@given(st.lists(st.builds(AttemptId, numbers, numbers, numbers), unique=True))
def test_ranges_expand_to_their_attempts_in_order(attempts: list[AttemptId]) -> None:
    said = adapter.validate_json(adapter.dump_json(ranges_of(attempts)))
    assert list(attempts_of(said)) == attempts


def test_a_bag_of_tasks_is_one() -> None:
    assert ranges_of(AttemptId(7, task, 1) for task in range(3, 300)) == ((7, 3, 299, 1),)


@pytest.mark.parametrize(
    "text", ["[[1,1,100001,1]]", "[[1,5,4,1]]", "[[1,-1,1,1]]", f"[{'[1,1,60000,1],' * 2}[1,1,1,1]]"]
)
def test_they_are_bounded(text: str) -> None:
    assert MAX_ATTEMPTS == 100_000
    with pytest.raises(ValidationError):
        adapter.validate_json(text)
