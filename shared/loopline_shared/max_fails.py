"""The limit of failed tasks at which a job is stopped: a number, or a share of its tasks."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

from pydantic import Field

MOST_FAILS = 100_000_000
_SHARE = r"^(100|[1-9]\d?(\.\d{1,6})?|0\.0{0,5}[1-9]\d{0,5})%$"
"""Above 0 and up to 100 per cent."""


MaxFails = Annotated[
    Annotated[int, Field(ge=1, le=MOST_FAILS)] | Annotated[str, Field(pattern=_SHARE)],
    Field(description="the job is stopped once so many of its tasks have failed: a number, or a share such as 10%"),
]


def most_failed(max_fails: int | str | None, task_count: int) -> int | None:
    """Return the number of failed tasks at which a job is stopped, at least one; None: it never is."""
    if max_fails is None or isinstance(max_fails, int):
        return max_fails
    return max(1, math.ceil(Fraction(max_fails.removesuffix("%")) * task_count / 100))
