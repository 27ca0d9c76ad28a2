"""What travels on a worker link. Two frames a task in steady state: a Report up, an Assign down.

The link is level-triggered: a Report says all that the worker holds, so that loss, reboot and restart are
mended by the next Report and need no recovery code of their own (architecture.md, "The way of one task").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from shared.model import MAX_ID, NO_NUL, AttemptId, Facts, Held, Load, Name, Probation, Result, Seconds, ShortText
from shared.scalar import Scalar

PROTOCOL_VERSION = 2
MAX_FRAME_BYTES = 64 * 2**20
MAX_RUNS_PER_ASSIGN = 50  # each of at most MAX_RUN_CHARACTERS, a character of at most 6 bytes
MAX_RESULTS_PER_REPORT = 500

Sequence = Annotated[int, Field(ge=0, le=MAX_ID)]


@dataclass(frozen=True, slots=True)
class Hello:
    """Worker to master, once, first: who is calling."""

    version: int
    worker: Name
    boot: Annotated[str, Field(min_length=1, max_length=64, pattern=NO_NUL)]  # new each time the agent starts
    facts: Facts
    kind: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True)
class Welcome:
    """Master to worker: the link is open. Report at least every ``report_every_s``."""

    report_every_s: Seconds
    lease_s: Seconds
    kind: Literal["welcome"] = "welcome"


@dataclass(frozen=True, slots=True)
class Refused:
    """Master to worker: the link will not open, and why; ``hint`` is the next step for a person."""

    code: Annotated[str, Field(max_length=50)]
    message: ShortText
    hint: ShortText = ""
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Report:
    """Worker to master: everything it holds, results not yet sent in this session, and its load.

    ``seen`` is the last Assign it has carried out. Each Report is answered by an Assign.
    """

    seq: Sequence
    seen: Sequence
    holding: tuple[Held, ...]
    results: Annotated[tuple[Result, ...], Field(max_length=MAX_RESULTS_PER_REPORT)]
    load: Load
    kind: Literal["report"] = "report"


@dataclass(frozen=True, slots=True)
class Run:
    """Start this attempt."""

    attempt: AttemptId
    command: tuple[str, ...]
    parameters: dict[str, Scalar]
    environment: dict[str, str]
    job_name: str = ""
    slots: Annotated[int, Field(ge=1)] = 1
    timeout_s: Seconds | None = None
    memory_bytes: Annotated[int, Field(ge=1, le=2**60)] | None = None  # it may use no more; None: the worker's share
    network: bool = False  # its job asks for it; where there is no sandbox, every task has it


@dataclass(frozen=True, slots=True)
class Assign:
    """Master to worker: start these, end those; Reports up to ``seen`` are on the master's disk.

    A run for which no slot is free waits at the worker, in order of arrival.
    """

    seq: Sequence
    seen: Sequence
    run: tuple[Run, ...] = ()
    cancel: tuple[AttemptId, ...] = ()
    held_s: Seconds | None = None  # from the coming of Report ``seen`` to this; None: it was answered before
    probation: Probation | None = None  # for whoever owns the computer; None: it is in good standing
    kind: Literal["assign"] = "assign"


FromWorker = Annotated[Hello | Report, Field(discriminator="kind")]
FromMaster = Annotated[Welcome | Refused | Assign, Field(discriminator="kind")]
