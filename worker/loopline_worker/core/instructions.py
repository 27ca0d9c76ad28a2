"""Instructions of a step to the agent, which writes the journal entry first and then obeys."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import Assign, Run


class Urgency(IntEnum):
    """Urgency of the next Report."""

    NOT = 0
    SOON = 1  # there is news, but a result often follows within moments, and one Report can carry both
    NOW = 2


@dataclass(slots=True)  # not frozen, as below: made for every step or for every task
class Start:
    """Start an attempt in slots of its own. ``slot``: the lowest of them."""

    run: Run
    slot: int = 0


@dataclass(slots=True)
class Prefetch:
    """Hand an attempt to a supervisor, to start in the slot of a task that ends."""

    run: Run


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare an attempt in its slots without starting it. Its wing will start it."""

    run: Run
    slot: int = 0


class WingInstruction:
    """Instruction of an optional feature (machine_wing.py), which defines it; its part of the agent obeys it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Retract:
    """Take back the prefetched attempts that have not begun; post Returned for them, and then Retracted."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop the processes of an attempt; post FreezeCompleted as soon as none runs."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Thaw:
    """Continue the processes of an attempt."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Kill:
    """End an attempt, unless it has ended by itself."""

    attempt: AttemptId
    outcome: Outcome
    reason: str = ""
    gently: bool = False  # SIGTERM first, SIGKILL after some time


@dataclass(frozen=True, slots=True)
class Deliver:
    """Write the result to disk and upload the files that it names, then post Delivered."""

    result: Result


@dataclass(frozen=True, slots=True)
class LogStart:
    """Log that an attempt started in the slot of another."""

    run: Run


@dataclass(frozen=True, slots=True)
class RecordPreemption:
    """Record that tasks were frozen for the owner."""

    why: str
    attempts: int
    took_s: float  # since the input or the decision
    after_input: bool


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line into the log."""

    text: str
    is_warning: bool = False


Instruction = (
    Start | Prefetch | Prepare | Retract | Freeze | Thaw | Kill | Deliver | LogStart | RecordPreemption | Log
    | WingInstruction
)  # fmt: skip


@dataclass(slots=True)
class Entry:
    """Entry of the journal, written in one piece."""

    results: list[Result] = field(default_factory=list)
    over: list[AttemptId] = field(default_factory=list)  # the master has their results: removed from disk
    came: list[tuple[Assign, bytes]] = field(default_factory=list)  # with their frames
    began: list[AttemptId] = field(default_factory=list)  # or may begin from now on
    life: str = ""  # new life of the master's database, for all attempts that are not over; empty: unchanged


@dataclass(slots=True)
class Instructions:
    """Output of one step; it applies until the next one."""

    journal: Entry = field(default_factory=Entry)
    todo: list[Instruction] = field(default_factory=list)  # in this order
    report: Urgency = Urgency.NOT
    is_busy: bool = False  # an attempt waits for a slot, so a Report may be delayed a little to carry more news
    idle_slots: int = 0  # allowed but not in use
    trouble: str = ""  # failure of this computer, until files can be written again
