"""Where the store gets what it does not hold itself: lines of row files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

Rows = Callable[[JobSpec, Iterable[int]], Awaitable[Mapping[int, Mapping[str, Scalar]]]]
"""Gets lines of a job's row file, by its tasks' numbers; none where it has no such file."""


async def no_rows(_spec: JobSpec, _tasks: Iterable[int]) -> Mapping[int, Mapping[str, Scalar]]:
    return {}
