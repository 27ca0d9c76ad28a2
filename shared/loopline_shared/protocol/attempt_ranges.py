"""Ranges of attempts: many attempts of one job in few numbers, for the waiting attempts of a Report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from loopline_shared.model import MAX_ID, AttemptId

MAX_ATTEMPTS = 100_000
"""Maximum number of attempts that a message's ranges stand for."""
_Number = Annotated[int, Field(ge=0, le=MAX_ID)]


class AttemptRange(NamedTuple):
    """The ``number``-th attempts at tasks ``first`` to ``last`` of a job."""

    job: _Number
    first: _Number
    last: _Number
    number: _Number

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that reads four numbers with no call of a Python function: a Report has many ranges."""
        numbers = core_schema.tuple_positional_schema([handler.generate_schema(_Number)] * len(cls._fields))
        return core_schema.no_info_after_validator_function(partial(tuple.__new__, cls), numbers)


def _bounded(ranges: tuple[AttemptRange, ...]) -> tuple[AttemptRange, ...]:
    further = [last - first for _, first, last, _ in ranges]  # attempts of each beside its first
    if min(further, default=0) < 0:
        raise ValueError("a range of attempts ends before it begins")
    if len(ranges) + sum(further) > MAX_ATTEMPTS:
        raise ValueError(f"more than {MAX_ATTEMPTS:,} attempts")
    return ranges


AttemptRanges = Annotated[
    tuple[AttemptRange, ...], Field(max_length=MAX_ATTEMPTS, fail_fast=True), AfterValidator(_bounded)
]


def ranges_of(attempts: Iterable[AttemptId]) -> tuple[AttemptRange, ...]:
    """Return the attempts as the fewest ranges that keep their order."""
    firsts, lasts, follower = list[AttemptId](), list[AttemptId](), None
    for attempt in attempts:
        if attempt == follower:
            lasts[-1] = attempt
        else:
            firsts.append(attempt)
            lasts.append(attempt)
        follower = (attempt.job, attempt.task + 1, attempt.number)
    return tuple(
        AttemptRange(one.job, one.task, last.task, one.number) for one, last in zip(firsts, lasts, strict=True)
    )


def count_of(ranges: Sequence[AttemptRange]) -> int:
    """Return the number of attempts that the ranges stand for."""
    return len(ranges) + sum([last - first for _, first, last, _ in ranges])


def attempts_of(ranges: Sequence[AttemptRange]) -> list[tuple[int, int, int]]:
    """Return the attempts as plain tuples, which equal their ids: they are cheaper, and built again and again."""
    if not ranges:
        return []
    jobs, firsts, lasts, numbers = zip(*ranges, strict=True)
    if firsts == lasts:  # as most often, where many workers take turns
        return list(zip(jobs, firsts, numbers, strict=True))
    return [(job, task, number) for job, first, last, number in ranges for task in range(first, last + 1)]
