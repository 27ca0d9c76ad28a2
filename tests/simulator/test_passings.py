"""Passings counted fast, against the definition word by word."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_simulator.fast.passings import Course, Passings, count


def by_definition(jobs: list[Course]) -> Passings:
    pairs = [(a, b) for place, b in enumerate(jobs) for a in jobs[:place]]
    passable = [(a, b) for a, b in pairs if a.completed > b.submitted and a.size <= b.size]
    return Passings(sum(b.completed < a.completed for a, b in passable), len(passable))


times = st.integers(0, 12).map(float)
jobs = st.lists(st.builds(Course, times, st.integers(1, 5).map(float), times | st.just(math.inf)), max_size=14)


@given(jobs)
def test_it_is_the_definition(drawn: list[Course]) -> None:
    ordered = sorted(drawn, key=lambda job: job.submitted)
    lived = [Course(job.submitted, job.size, job.submitted + job.completed + 1) for job in ordered]
    assert count(lived) == by_definition(lived)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([Course(0, 1, 9), Course(1, 1, 5)], Passings(1, 1)),
        ([Course(0, 2, 9), Course(1, 1, 5)], Passings(0, 0)),  # a smaller job may overtake
        ([Course(0, 1, 9), Course(1, 1, 9)], Passings(0, 1)),  # together is not before
        ([Course(0, 1, 1), Course(1, 1, 5)], Passings(0, 0)),  # it had left
        ([Course(0, 1, math.inf), Course(1, 1, 5)], Passings(1, 1)),
        ([], Passings(0, 0)),
    ],
)
def test_edges(jobs: list[Course], expected: Passings) -> None:
    assert count(jobs) == expected


def test_many_jobs_are_no_trouble() -> None:
    jobs = [Course(n, n * 7919 % 20011, n + 1 + n * 104729 % 30011) for n in range(20_000)]
    assert 0 < count(jobs).passed < count(jobs).passable
