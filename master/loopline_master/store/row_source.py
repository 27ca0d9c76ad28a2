"""The source of lines of row files, which the database does not hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

Rows = Callable[[JobSpec, Iterable[int]], Awaitable[Mapping[int, Mapping[str, Scalar]]]]
"""Returns lines of a job's row file by the numbers of their tasks; none if the job has no such file."""


async def no_rows(_spec: JobSpec, _tasks: Iterable[int]) -> Mapping[int, Mapping[str, Scalar]]:
    """Return no lines."""
    return {}
