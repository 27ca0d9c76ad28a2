"""Attempts at tasks that follow one another, said in one breath: hundreds of short tasks may wait at a worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from loopline_shared.model import MAX_ID, AttemptId

MAX_ATTEMPTS = 100_000
"""That stretches may stand for altogether."""

_Number = Annotated[int, Field(ge=0, le=MAX_ID)]


class Stretch(NamedTuple):
    """The ``number``-th attempts at tasks ``first`` to ``last`` of a job."""

    job: _Number
    first: _Number
    last: _Number
    number: _Number


def _bounded(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    if any(one.first > one.last for one in stretches):
        raise ValueError("a stretch that ends before it begins")
    if sum(one.last - one.first + 1 for one in stretches) > MAX_ATTEMPTS:
        raise ValueError(f"more than {MAX_ATTEMPTS:,} attempts")
    return stretches


Stretches = Annotated[tuple[Stretch, ...], AfterValidator(_bounded)]


def stretches(attempts: Iterable[AttemptId]) -> tuple[Stretch, ...]:
    """These attempts, in as few stretches as their order allows."""
    firsts, lasts, follower = list[AttemptId](), list[AttemptId](), None
    for attempt in attempts:
        if attempt == follower:
            lasts[-1] = attempt
        else:
            firsts.append(attempt)
            lasts.append(attempt)
        follower = (attempt.job, attempt.task + 1, attempt.number)
    return tuple(Stretch(one.job, one.task, last.task, one.number) for one, last in zip(firsts, lasts, strict=True))


def attempts_of(stretches: Iterable[Stretch]) -> list[tuple[int, int, int]]:
    """As plain tuples, which equal their ids and are found where those are: hundreds are said again and again."""
    attempts: list[tuple[int, int, int]] = []
    for job, first, last, number in stretches:
        if first == last:
            attempts.append((job, first, number))
        else:
            attempts += [(job, task, number) for task in range(first, last + 1)]
    return attempts
