"""Instructions: what a step of the machine asks of the agent. The journal is written first, then they are obeyed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import Assign, Run


class Urgency(IntEnum):
    """Urgency of the next Report."""

    NOT = 0
    SOON = 1  # the master does not know all yet; often a result comes first, and one Report tells both
    NOW = 2


@dataclass(slots=True)  # not frozen, as below: made for every step or for every task
class Start:
    """Start an attempt, in slots of its own, of which ``slot`` is the lowest."""

    run: Run
    slot: int = 0


@dataclass(slots=True)
class Prefetch:
    """Hand an attempt to a supervisor, to start in the slot of a task that ends."""

    run: Run


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare an attempt in its slots, and start nothing of it: a wing does."""

    run: Run
    slot: int = 0


class WingInstruction:
    """Instruction of an optional feature (machine_wing.py), which defines it; its part of the agent obeys it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Retract:
    """Take back whatever is prefetched and has not begun; post Returned for it, and then Retracted."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop the processes of an attempt; post FreezeCompleted as soon as none moves."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let the processes of an attempt go on."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Kill:
    """End an attempt, unless it has ended by itself."""

    attempt: AttemptId
    outcome: Outcome
    reason: str = ""
    gently: bool = False  # by SIGTERM, and by SIGKILL after some time


@dataclass(frozen=True, slots=True)
class Deliver:
    """See to it that the disk has the result and the master the files that it names; then post Delivered."""

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
    took_s: float  # since the input, or since it was decided
    after_input: bool


@dataclass(frozen=True, slots=True)
class Log:
    """Tell the operator."""

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
    over: list[AttemptId] = field(default_factory=list)  # the master has their results: they leave the disk
    came: list[tuple[Assign, bytes]] = field(default_factory=list)  # with their frames
    began: list[AttemptId] = field(default_factory=list)  # or may begin from now on
    life: str = ""  # of the master's database, to which all that is not over belongs; empty: the one before


@dataclass(slots=True)
class Instructions:
    """All that one step asks for, and all that the agent goes by until the next one."""

    journal: Entry = field(default_factory=Entry)
    todo: list[Instruction] = field(default_factory=list)  # in this order
    report: Urgency = Urgency.NOT
    is_busy: bool = False  # something waits for a slot: there is no hurry to tell what happens in a moment
    idle_slots: int = 0  # allowed, and not taken up
    trouble: str = ""  # what this computer failed to do, until files can be written again
