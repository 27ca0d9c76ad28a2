"""The latest steps: how long each took, and its commit. Prometheus has them all; these are for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from loopline_shared.rest.bodies import Spread, StepTimes

_KEPT = 1000


class LatestSteps:
    """The times of the latest steps."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, float, int]] = deque(maxlen=_KEPT)

    def add(self, took_s: float, commit_s: float, waiting: int) -> None:
        """Add a step. ``waiting``: events that had come by its end."""
        self._steps.append((took_s, commit_s, waiting))

    def view(self) -> StepTimes:
        """Return how long they took."""
        took, commits, waiting = zip(*self._steps, strict=True) if self._steps else ((), (), ())
        return StepTimes(
            count=len(self._steps),
            step=_spread(took),
            commit=_spread(commits),
            waiting=waiting[-1] if waiting else 0,
            most_waiting=max(waiting, default=0),
        )


def _spread(times: Sequence[float]) -> Spread | None:
    if not times:
        return None
    ordered = sorted(times)
    last = len(ordered) - 1
    return Spread(p50_s=ordered[last // 2], p99_s=ordered[round(last * 0.99)], most_s=ordered[-1])
