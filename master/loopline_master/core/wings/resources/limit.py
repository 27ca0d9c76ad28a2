"""Limit: the number of units of something that the grid, or a user, may use at once."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_GRID, EACH_USER = "", "*"
"""Values of ``Limit.user``."""


@dataclass(slots=True)
class Limit:
    """An operator's limit, as one row. A user's own limit takes the place of the one for each user."""

    name: str
    user: str  # whom it applies to: a user, EACH_USER, or WHOLE_GRID
    units: int
