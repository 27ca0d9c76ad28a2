"""The scheduler's step and the link's codec do not go back to what they once took: instructions, not seconds."""

import pytest

from tests.instructions import VERSION, counted, counts_apart, recorded

TOLERANCE = 1.03
"""Counts do not scatter: this is what all features together may cost while they are off."""


def test_nothing_takes_clearly_more_than_was_recorded() -> None:
    known = recorded()
    if known is None:
        pytest.skip(f"nothing is recorded for Python {VERSION}: python -m tests.instructions --record")
    now = counts_apart()
    worse = [f"{name}: {now[name]:,}, was {known[name]:,}" for name in known if now[name] > TOLERANCE * known[name]]
    assert not worse, (
        f"{'; '.join(worse)} instructions. Find what costs so much (cProfile over scheduler_step.py of benchmarks); "
        "if it is worth it, record it anew: python -m tests.instructions --record"
    )


def test_the_same_deed_counts_the_same() -> None:
    def deed() -> int:
        return sum(number for number in range(100))

    assert counted(deed) == counted(deed) > 400
