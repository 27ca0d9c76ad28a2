"""The messages of the worker link; link_session.py has their form as bytes, and the session at both ends.

In steady state a task takes two frames: a Report up, an Assign down. The link is level-triggered: a Report names
everything that the worker holds, so that the next Report repairs loss, reboot and restart without recovery code
(docs/design/architecture.md). A frame is validated JSON.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from loopline_shared.model import (
    MAX_ID,
    MAX_OUTPUT_PATTERNS,
    MAX_OWN_INPUTS,
    NO_NUL,
    AttemptId,
    Count,
    Data,
    Facts,
    Function,
    Held,
    Load,
    Name,
    Quarantine,
    Result,
    Seconds,
    Sha256,
    SharedFolder,
    ShortText,
    StagedInput,
    Stream,
)
from loopline_shared.paths import Pattern, RelativePath
from loopline_shared.protocol.attempt_ranges import AttemptRanges
from loopline_shared.protocol.checkpoints import CheckpointOrder, CheckpointReport
from loopline_shared.protocol.gang_messages import GangPlace, Member, Word
from loopline_shared.protocol.gpus import MAX_GPUS, GpuId
from loopline_shared.protocol.power import GoodBye, PowerOrders
from loopline_shared.protocol.software import Software
from loopline_shared.protocol.transfers import FlowMeasured, MeasureFlow, PeerOrders, PeerReport, PeerTerms
from loopline_shared.scalar import Scalar

PROTOCOL_VERSION = 3
"""The only version spoken. The release after the first will also speak the one before."""
MAX_FRAME_BYTES = 64 * 2**20
MAX_FRAME_VALUES = 10**6  # they cost more to read than bytes do; a full Report has less than half as many
MAX_HELLO_BYTES = 2**20
MAX_RUNS_PER_ASSIGN = 500
MAX_LONG_RUNS_PER_ASSIGN = 50  # each of at most MAX_RUN_CHARACTERS, a character of at most 6 bytes; or as much in all
MAX_STRANGERS_PER_ASSIGN = 1000  # attempts that are cancelled because their worker should not have them
MAX_RESULTS_PER_REPORT = 500
MAX_OUTPUT_FILES_PER_REPORT = 20_000  # each with a path of at most MAX_PATH_CHARACTERS, of at most 4 bytes
MAX_WROTE_BYTES = 64 * 1024
MAX_CERTIFICATE_CHARACTERS = 16_384
MAX_MEMBERS = 65_536  # each has a slot at least
MAX_HELD = 65_536  # the same
KILL_AFTER_S = 10.0
MAX_READS = 100  # unanswered at once, on one link
OwnInputs = Annotated[dict[RelativePath, StagedInput], Field(max_length=MAX_OWN_INPUTS)]
FrameNumber = Annotated[int, Field(ge=0, le=MAX_ID)]
Life = Annotated[str, Field(max_length=64, pattern=NO_NUL, exclude_if=not_)]
"""Id of a life of the master's database: each restore begins another. Attempts of two lives may have one name."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Worker to master, once, first: the identity of the worker."""

    version: int
    worker: Name
    boot: Annotated[str, Field(min_length=1, max_length=64, pattern=NO_NUL)]  # new each time the agent starts
    facts: Facts
    _: KW_ONLY
    instance: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """A secret of this worker's data folder, needed to take over its link."""
    request: Annotated[str, Field(max_length=MAX_CERTIFICATE_CHARACTERS, exclude_if=not_)] = ""
    """Request for a certificate (PEM). Over a connection that shows none, the link ends with the Welcome."""
    kind: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True)
class Welcome:
    """Master to worker: the link is open. Report at least every ``report_every_s``."""

    report_every_s: Seconds
    lease_s: Seconds
    _: KW_ONLY
    peers: Annotated[PeerTerms | None, Field(exclude_if=not_)] = None  # None: files come from the master alone
    certificate: Annotated[str, Field(max_length=MAX_CERTIFICATE_CHARACTERS, exclude_if=not_)] = ""
    """Of the worker, with that of the CA behind it (PEM); empty: it asked for none."""
    life: Life = ""  # of the master's database; a worker ends and forgets attempts of another life
    kind: Literal["welcome"] = "welcome"


@dataclass(frozen=True, slots=True)
class Refused:
    """Master to worker: the link is refused, with the reason; ``hint`` is the next step for a person."""

    code: Annotated[str, Field(max_length=50)]
    message: ShortText
    hint: ShortText = ""
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Report:
    """Worker to master: everything that it holds, results not yet sent in this session, and its load.

    ``seen`` is the last Assign that it has carried out. Each Report is answered by an Assign.
    """

    seq: FrameNumber
    seen: FrameNumber
    holding: Annotated[tuple[Held, ...], Field(max_length=MAX_HELD, fail_fast=True)]  # attempts that take up slots
    results: Annotated[tuple[Result, ...], Field(max_length=MAX_RESULTS_PER_REPORT, fail_fast=True)]
    load: Load
    _: KW_ONLY
    waiting: Annotated[AttemptRanges, Field(exclude_if=not_)] = ()  # for a slot, in order of arrival
    delivering: Annotated[AttemptRanges, Field(exclude_if=not_)] = ()  # have ended; their results are on the way
    members: Annotated[tuple[Member, ...], Field(max_length=MAX_MEMBERS, fail_fast=True)] = ()  # of gangs, not begun
    peers: Annotated[PeerReport | None, Field(exclude_if=not_)] = None  # files that go between workers
    checkpoints: Annotated[CheckpointReport | None, Field(exclude_if=not_)] = None  # None: no news of any
    life: Life = ""  # of all attempts of this session, in its first Report; empty: not known
    good_bye: Annotated[GoodBye | None, Field(exclude_if=not_)] = None  # the computer is about to sleep
    kind: Literal["report"] = "report"


@dataclass(slots=True)  # not frozen: freezing triples the cost of creation
class Run:
    """Order to start an attempt."""

    attempt: AttemptId
    command: tuple[str, ...]
    parameters: dict[str, Scalar]
    environment: dict[str, str]
    job_name: str = ""
    slots: Annotated[int, Field(ge=1)] = 1
    timeout_s: Seconds | None = None
    memory_bytes: Annotated[int, Field(ge=1, le=2**60)] | None = None  # limit; None: the worker's share
    network: bool = False  # requested by its job; without a sandbox, every task has it
    inputs: Sha256 | None = None  # of a file that lists those of its job's tasks (loopline_shared/manifest.py)
    own_inputs: OwnInputs = field(default_factory=dict)  # of this task; they override the job's
    outputs: Annotated[tuple[Pattern, ...], Field(max_length=MAX_OUTPUT_PATTERNS)] = ()  # files to bring back
    function: Function | None = None  # called in place of a command; its session is its user's alone
    row_file: Sha256 | None = None
    """Row file that holds the task's parameters. The master fills them in before it sends the Run.

    A Run that arrives with this field cannot be run, because the file is gone.
    """
    folder: SharedFolder = ""  # the command's working folder; empty: the scratch folder
    software: Annotated[Software | None, Field(exclude_if=not_)] = None  # that it runs with
    user: Annotated[str, Field(max_length=200)] = ""  # whose task it is, for the PC's owner; empty: not said
    gang: GangPlace | None = None  # it is a member of a gang: to be prepared, and begun at the master's word
    optional_outputs: Annotated[tuple[Pattern, ...], Field(max_length=MAX_OUTPUT_PATTERNS, exclude_if=not_)] = ()
    """Files to bring back if there are any."""
    kill_after_s: Annotated[Seconds, Field(exclude_if=lambda seconds: seconds == KILL_AFTER_S)] = KILL_AFTER_S
    """Time between SIGTERM and SIGKILL where the task is ended by its time limit, its user or an operator."""
    term_s: Annotated[Seconds | None, Field(exclude_if=not_)] = None
    """Time after the sending of the last answered Report when the worker ends the attempt; None: never."""
    checkpoint: Annotated[CheckpointOrder | None, Field(exclude_if=not_)] = None  # None: it takes no checkpoints
    gpus: Annotated[tuple[GpuId, ...], Field(max_length=MAX_GPUS, exclude_if=not_)] = ()  # for it alone

    @property
    def has_files(self) -> bool:
        """True if the task has inputs or outputs."""
        return bool(self.inputs or self.own_inputs or self.outputs or self.optional_outputs)


NAMES_OF_SECRETS = "LOOPLINE_SECRETS"
"""A variable of a task that has secrets: their names. Such a Run is never written to a worker's disk."""


@dataclass(slots=True)  # not frozen: freezing triples the cost of creation
class Assign:
    """Master to worker: start these, end those; Reports up to ``seen`` are on the master's disk.

    A run without a free slot waits at the worker, in order of arrival.
    """

    seq: FrameNumber
    seen: FrameNumber
    run: tuple[Run, ...] = ()
    cancel: tuple[AttemptId, ...] = ()
    _: KW_ONLY
    gently: Annotated[tuple[AttemptId, ...], Field(exclude_if=not_)] = ()
    """Attempts of ``cancel`` that get SIGTERM and some time: a person ends them, and no other result exists."""
    preempt: Annotated[tuple[AttemptId, ...], Field(exclude_if=not_)] = ()
    """Attempts of ``cancel`` that are given back, with their checkpoints, if they are frozen, and else continue."""
    held_s: Seconds | None = None  # from the arrival of Report ``seen`` until now; None: it was answered before
    quarantine: Quarantine | None = None  # shown to the PC's owner; None: the worker is healthy
    words: Annotated[tuple[Word, ...], Field(max_length=MAX_MEMBERS)] = ()  # to members of gangs
    peers: Annotated[PeerOrders | None, Field(exclude_if=not_)] = None  # files to take from workers; None: none
    power: Annotated[PowerOrders | None, Field(exclude_if=not_)] = None  # None: no orders
    kind: Literal["assign"] = "assign"


@dataclass(frozen=True, slots=True)
class Read:
    """Master to worker: request for an attempt's output from this byte on. The answer comes once there is some, or no
    more.
    """

    number: FrameNumber  # of the question, on this link
    attempt: AttemptId
    stream: Stream
    offset: Count
    kind: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Wrote:
    """Worker to master: the answer to a Read. ``is_over`` is true if nothing will follow, or the attempt is
    not here.
    """

    number: FrameNumber
    data: Annotated[Data, Field(max_length=MAX_WROTE_BYTES)]
    is_over: bool
    kind: Literal["wrote"] = "wrote"


ToMaster = Hello | Report | Wrote | FlowMeasured
ToWorker = Welcome | Refused | Assign | Read | MeasureFlow
FromWorker = Annotated[ToMaster, Field(discriminator="kind")]
FromMaster = Annotated[ToWorker, Field(discriminator="kind")]
