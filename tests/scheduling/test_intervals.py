"""An IntervalSet against a plain set of numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from tests.campaign import PATIENT, tried

numbers = st.integers(1, 12)


class RangesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ranges, self.naive = IntervalSet(), set[int]()

    @rule(number=numbers)
    def add(self, number: int) -> None:
        self.ranges.add(number)
        self.naive.add(number)

    @rule(number=numbers)
    def discard(self, number: int) -> None:
        self.ranges.discard(number)
        self.naive.discard(number)

    @invariant()
    def is_the_set(self) -> None:
        assert list(self.ranges) == sorted(self.naive)
        assert len(self.ranges) == len(self.naive)
        for number in range(14):
            assert (number in self.ranges) == (number in self.naive)
            later = [member for member in self.naive if member > number]
            assert self.ranges.first_after(number) == min(later, default=None)

    @invariant()
    def pairs_are_sorted_disjoint_and_never_touch(self) -> None:
        edges = [edge for pair in self.ranges.pairs() for edge in pair]
        assert edges == sorted(set(edges)), "touching or empty ranges would make equal sets unequal"


TestRanges = RangesMachine.TestCase
TestRanges.settings = settings(PATIENT, max_examples=tried(30), stateful_step_count=25)


@given(st.lists(numbers))
def test_equal_sets_compare_equal_whatever_their_history(members: list[int]) -> None:
    again = IntervalSet.of(sorted(set(members)))
    assert IntervalSet.of(members) == again
    assert IntervalSet(again.pairs()) == again
    assert IntervalSet.of([*members, 13]) != again


def test_a_million_numbers_cost_one_range() -> None:
    ranges = IntervalSet([(1, 10**6 + 1)])
    assert len(ranges) == 10**6
    ranges.discard(500_000)
    assert ranges.pairs() == [(1, 500_000), (500_001, 10**6 + 1)]
    ranges.add(500_000)
    assert ranges.pairs() == [(1, 10**6 + 1)]


def test_empty_pairs_are_dropped() -> None:
    assert IntervalSet([(3, 3), (1, 2)]).pairs() == [(1, 2)]
