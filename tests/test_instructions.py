"""Instruction counts of the scheduler's step and the link's codec stay near their records."""

import pytest

from tests.instructions import VERSION, a_report_of_many, counted, counts_apart, recorded

TOLERANCE = 1.03
"""Counts are deterministic: this is the permitted cost of all disabled features together."""


def test_no_count_is_clearly_above_its_record() -> None:
    known = recorded()
    if known is None:
        pytest.skip(f"nothing is recorded for Python {VERSION}: python -m tests.instructions --record")
    now = counts_apart()
    worse = [f"{name}: {now[name]:,}, was {known[name]:,}" for name in known if now[name] > TOLERANCE * known[name]]
    assert not worse, (
        f"{'; '.join(worse)} instructions. Find what costs so much (cProfile over scheduler_step.py of benchmarks); "
        "if it is worth it, record it anew: python -m tests.instructions --record"
    )


def test_count_of_an_operation_is_repeatable() -> None:
    def operation() -> int:
        return sum(number for number in range(100))

    assert counted(operation) == counted(operation) > 400


@pytest.mark.parametrize("policy", ["round-robin", "fair", "first-come"])
def test_needs_of_resources_add_at_most_half_to_a_step(policy: str) -> None:
    """50 different needs of 8 resources, beside 50 different needs of memory."""
    plain, needing = (a_report_of_many(policy, with_units=with_units) for with_units in (False, True))
    assert needing < 1.5 * plain, f"{needing:.0f} instructions, {plain:.0f} without units"
