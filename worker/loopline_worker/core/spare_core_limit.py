"""The spare-core limit: slots that the owner's own programs leave to tasks, with some inertia. Pure."""

from __future__ import annotations

import math

KEEP = 0.5
GROW = 0.25
"""A slot that is there is kept until half of it is missing; a new one comes when no more than a quarter is.

The two differ by more than a smoothed spare CPU swings, so that slots do not come and go with it.
"""


def fit(slots: int, spare_cpu: float, most: int, cores_per_slot: float = 1.0) -> int:
    """Return the slots to offer from now on, at most ``most``, after ``slots`` until now."""
    room = max(0.0, spare_cpu) / cores_per_slot
    kept, reached = math.floor(room + KEEP), math.floor(room + GROW)
    return min(most, max(min(slots, kept), reached))


def cores_per_slot(cores: float, most: int) -> float:
    """Return 1, or less if the computer was told to offer more slots than it has cores."""
    return min(1.0, cores / most)
