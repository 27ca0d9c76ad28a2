"""Passings counted fast, against the definition word by word."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_simulator.fast.passings import JobSpan, PassingCount, count


def by_definition(jobs: list[JobSpan]) -> PassingCount:
    def weight(job: JobSpan) -> float:
        return next((size for size in (job.size, job.shown) if size is not None), math.inf)

    pairs = [(a, b) for place, b in enumerate(jobs) for a in jobs[:place]]
    claims = [(a, b) for a, b in pairs if a.size is not None and a.size <= weight(b)]
    passable = [(a, b) for a, b in claims if a.completed > b.submitted]
    return PassingCount(sum(b.completed < a.completed for a, b in passable), len(passable))


times = st.integers(0, 12).map(float)
sizes = st.none() | st.integers(1, 5).map(float)
jobs = st.lists(st.builds(JobSpan, times, sizes, times | st.just(math.inf), sizes), max_size=14)


@given(jobs)
def test_it_is_the_definition(drawn: list[JobSpan]) -> None:
    ordered = sorted(drawn, key=lambda job: job.submitted)
    lived = [JobSpan(job.submitted, job.size, job.submitted + job.completed + 1, job.shown) for job in ordered]
    assert count(lived) == by_definition(lived)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([JobSpan(0, 1, 9), JobSpan(1, 1, 5)], PassingCount(1, 1)),
        ([JobSpan(0, 2, 9), JobSpan(1, 1, 5)], PassingCount(0, 0)),  # a smaller job may overtake
        ([JobSpan(0, None, 9), JobSpan(1, 1, 5)], PassingCount(0, 0)),  # a job without a size is never passed
        ([JobSpan(0, None, 9), JobSpan(1, None, 5)], PassingCount(0, 0)),
        ([JobSpan(0, 1, 9), JobSpan(1, None, 5)], PassingCount(1, 1)),
        ([JobSpan(0, 1, 9), JobSpan(1, 1, 9)], PassingCount(0, 1)),  # together is not before
        ([JobSpan(0, 1, 1), JobSpan(1, 1, 5)], PassingCount(0, 0)),  # it had left
        ([JobSpan(0, 1, math.inf), JobSpan(1, 1, 5)], PassingCount(1, 1)),
        ([], PassingCount(0, 0)),
    ],
)
def test_edges(jobs: list[JobSpan], expected: PassingCount) -> None:
    assert count(jobs) == expected


def test_many_jobs_are_no_trouble() -> None:
    jobs = [JobSpan(n, n * 7919 % 20011, n + 1 + n * 104729 % 30011) for n in range(20_000)]
    assert 0 < count(jobs).passed < count(jobs).passable
