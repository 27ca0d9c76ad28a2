"""Parallel tasks: each runs on several workers at once, as a gang of members with ranks 0, 1, 2, ..."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loopline_shared.model import AttemptId

MAX_NODES = 256
"""Most workers that one task may run on at once."""

Nodes = Annotated[
    int, Field(ge=1, le=MAX_NODES, description="workers that each task runs on at once: a gang, all or none")
]


def rank_of(number: int, nodes: int) -> int:
    """Return the rank of the member whose attempt has this number: each launch of a gang takes ``nodes`` numbers."""
    return (number - 1) % nodes


def launch_of(member: AttemptId, nodes: int) -> AttemptId:
    """Return the id of the launch that an attempt is a member of: the id of its member of rank 0."""
    return AttemptId(member.job, member.task, member.number - rank_of(member.number, nodes))


def check_parallel(*, calls_function: bool, quorum: int | None) -> None:
    """Raises ValueError if a job on several nodes asks for what its tasks cannot have."""
    if calls_function:
        raise ValueError("a function runs on one worker: a job with nodes runs a command")
    if quorum is not None:
        raise ValueError("results of a task on several nodes are not compared: leave out quorum")
