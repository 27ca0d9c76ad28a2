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


@pytest.mark.parametrize(
    ("held", "most"), [("resources", 1.5), ("limits", 1.5), ("gpus", 1.5), ("both", 1.9)], ids=lambda one: str(one)
)
@pytest.mark.parametrize("policy", ["round-robin", "fair", "first-come", "turnaround"])
def test_units_add_at_most_half_to_a_step(policy: str, held: str, most: float) -> None:
    """Wide tasks that hold limits, too, cost more than the aim of 1.5.

    Two limits alone add a quarter, units of up to three resources two fifths, and a worker is always reserved.
    """
    plain, needing = (a_report_of_many(policy, one) for one in ("", held))
    assert needing < most * plain, f"{needing:.0f} instructions, {plain:.0f} without units"
