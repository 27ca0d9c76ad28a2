"""The part of a worker link that is about gangs: parallel tasks, whose members run on several workers at once.

A Run with a ``GangPlace`` is prepared and then waits: its inputs are there, its folder is made, its slots are kept.
The worker's Reports name it as a ``Member`` until a ``Word`` of the master has it begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from loopline_shared.model import NO_NUL, AttemptId, Seconds
from loopline_shared.parallel import MAX_NODES

MAX_SECRET_CHARACTERS = 100
Host = Annotated[str, Field(max_length=255, pattern=NO_NUL)]
"""The address of a worker for the other members."""
Port = Annotated[int, Field(ge=0, le=65535)]


@dataclass(frozen=True, slots=True)
class GangPlace:
    """The place of a member in its gang. ``secret`` is the gang's own: the master fills it in as it sends the Run."""

    rank: Annotated[int, Field(ge=0, lt=MAX_NODES)]
    hosts: Annotated[tuple[Host, ...], Field(min_length=1, max_length=MAX_NODES)]  # by rank
    wait_s: Seconds  # a waiting member stands down after this silence of the master
    secret: Annotated[str, Field(max_length=MAX_SECRET_CHARACTERS)] = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A member that has not begun, as its worker's Report has it."""

    attempt: AttemptId
    is_ready: bool = False  # prepared: it waits for the word to start
    port: Port = 0  # free at its worker as it was prepared; rank 0's is the gang's meeting point


class MemberOrder(StrEnum):
    """The orders that a member may get."""

    START = "start"
    FREEZE = "freeze"
    THAW = "thaw"


@dataclass(frozen=True, slots=True)
class Word:
    """The master's word to one member. It is repeated until a Report shows its effect."""

    attempt: AttemptId
    order: MemberOrder
    delay_s: Seconds = 0.0  # of a start, from the arrival of the word
    rendezvous: Host = ""  # of a start: host:port at rank 0's worker, where members may meet
