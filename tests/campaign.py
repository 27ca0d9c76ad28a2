"""How many random examples tests try: few in `make test` and `make test-full`, many in `make test-campaigns`.

A systematic error shows within a few examples. These are the same in every run, so that no change fails by chance.
Campaigns look for rare errors: their seed is the day, and a seed that found an error can be given again.
`make test-repeat` also gives every run its own seed.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("LOOPLINE_CAMPAIGNS") == "1"
SEEDED = os.environ.get("LOOPLINE_RANDOM_EXAMPLES") == "1"
"""True under `make test-repeat`: other examples in each run."""
TIMES = 20
CHECK_EVERY = 1 if LONG else 4
"""Steps of a long life between two checks of all invariants, which cost as much as several steps. An inconsistent
state stays inconsistent, so it is found a little later.
"""


def tried(quick: int, long: int | None = None) -> int:
    """Return the number of examples, seeds or rounds to try: `quick`, or in campaigns `long` or 20 times `quick`."""
    return (quick * TIMES if long is None else long) if LONG else quick


# A busy computer is slow, so a slow example is not an error.
PATIENT = settings(
    deadline=None,
    derandomize=not (LONG or SEEDED),
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=tried(40),
)
