"""How much chance the suite tries: a little in `make test`, so that nobody waits, and much in `make test-long`.

What is wrong by construction shows within a few examples, which are the same every time: nobody's change is refused
by luck. What needs luck is looked for by the long run, which takes the day as its seed, so that other cases are tried
every day; a seed that found something can be given again.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("LOOPLINE_LONG_TESTS") == "1"
TIMES = 20
CHECK_EVERY = 1 if LONG else 4
"""Steps of a long life between two checks of all its invariants, which cost as much as some steps: a state that
contradicts itself goes on doing so, and is found a little later.
"""


def tried(quick: int, long: int | None = None) -> int:
    """How many examples, seeds or rounds to try: `quick` in `make test`, `long` or 20 times that in the long run."""
    return (quick * TIMES if long is None else long) if LONG else quick


# A busy computer is slow: that an example takes long says nothing about it.
PATIENT = settings(
    deadline=None, derandomize=not LONG, suppress_health_check=[HealthCheck.too_slow], max_examples=tried(40)
)
