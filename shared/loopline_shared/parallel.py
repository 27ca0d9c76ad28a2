"""Parallel tasks: each runs on several workers at once, as a gang of members with ranks 0, 1, 2, ..."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_NODES = 256
"""Most workers that one task may run on at once."""

Nodes = Annotated[
    int, Field(ge=1, le=MAX_NODES, description="workers that each task runs on at once: a gang, all or none")
]


def rank_of(number: int, nodes: int) -> int:
    """Return the rank of the member whose attempt has this number: each launch of a gang takes ``nodes`` numbers."""
    return (number - 1) % nodes


def check_parallel(*, calls_function: bool, quorum: int | None, max_replicas: int | str | None) -> None:
    """Raises ValueError if a job on several nodes asks for what its tasks cannot have."""
    if calls_function:
        raise ValueError("a function runs on one worker: a job with nodes runs a command")
    if quorum is not None or max_replicas not in (None, 1):
        raise ValueError("a task on several nodes has no replicas: leave out quorum and max_replicas")
