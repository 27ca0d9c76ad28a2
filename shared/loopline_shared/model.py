"""The words of Loopline: ids, states, and what a worker says of itself and of what it ran.

Frozen, slotted dataclasses: cheap in the pure parts, and validated by pydantic wherever they cross an edge.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, core_schema

from loopline_shared.paths import RelativePath

INLINE_LIMIT_BYTES = 4096
"""Output up to this long travels inside its result; longer output is a blob named by its SHA-256."""
MAX_INLINE_BYTES = 64 * 1024
"""The same of what the calls of one task returned, where it makes several."""
MAX_CHUNK = 1_000_000
"""Calls that one task may make."""

MAX_OWN_INPUTS = 100
"""Input files of one task's own, beside those that its job's tasks have in common."""
MAX_OUTPUT_PATTERNS = 100
MAX_OUTPUT_FILES = 1000
"""That one attempt may bring back: their names travel inside its result."""
MAX_OUTPUT_NAMES = 100_000
"""Characters of their names altogether."""

MAX_ID = 2**53 - 1
"""Largest number that survives every JSON reader."""


class _DottedId:
    """Shared by the ids: written as dotted numbers (``12.3.1``) in JSON, URLs and logs."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"12.3.1"``; ValueError names what was expected."""
        parts = text.split(".")
        fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        if len(parts) != len(fields) or not all(p.isascii() and p.isdigit() and len(p) < 17 for p in parts):
            raise ValueError(f"expected {'.'.join(fields)} as numbers, got {text[:80]!r}")
        return cls._of_numbers(text)

    @classmethod
    def _of_numbers(cls, text: str) -> Self:
        """Of text that is known to be as it should."""
        return cls._make(map(int, text.split(".")))  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        text = core_schema.str_schema(pattern=r"^[0-9]{1,16}" + r"\.[0-9]{1,16}" * (len(fields) - 1) + "$")
        from_text = core_schema.no_info_after_validator_function(cls._of_numbers, text)
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_text]),
            serialization=core_schema.to_string_ser_schema(),
        )


class _TaskFields(NamedTuple):
    job: int
    task: int


class TaskId(_DottedId, _TaskFields):
    """The ``task``-th task (from 1) of a job: ``12.3``."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.job}.{self.task}"


class _AttemptFields(NamedTuple):
    job: int
    task: int
    number: int


class AttemptId(_DottedId, _AttemptFields):
    """The ``number``-th attempt (from 1, never reused) at a task: ``12.3.1``. The paper's *instance*."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.job}.{self.task}.{self.number}"

    @property
    def task_id(self) -> TaskId:
        return TaskId(self.job, self.task)


class JobState(StrEnum):
    WAITING = "waiting"  # for other jobs to succeed: not yet in the grid
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    DISPATCHED = "dispatched"  # to begin at once
    PREFETCHED = "prefetched"  # dispatched, to wait at its worker for a slot
    RUNNING = "running"
    FROZEN = "frozen"  # it has begun, and stands still for the sake of the computer's owner
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLING = "cancelling"  # its cancel is on the way; it takes up its slots until it is gone
    RETRACTING = "retracting"  # the same of one that waits at its worker, and takes up none
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def without_phase(self) -> AttemptState:
        """The state as it was called before PREFETCHED, FROZEN and RETRACTING were states."""
        return _WITHOUT_PHASE.get(self, self)


_WITHOUT_PHASE = {
    AttemptState.PREFETCHED: AttemptState.DISPATCHED,
    AttemptState.FROZEN: AttemptState.RUNNING,
    AttemptState.RETRACTING: AttemptState.CANCELLING,
}


class Order(StrEnum):
    """What is promised about the order of completions; stamped on a job when it is submitted."""

    HOLD = "hold"  # its last task is not computed before those jobs have completed that it may not pass
    DELIVER = "deliver"  # it is computed freely, and completes when they have
    NONE = "none"


class SizeSource(StrEnum):
    """Who says how large a job is; stamped on it, with its size, when it is submitted."""

    GIVEN = "given"  # its user
    PREDICTED = "predicted"  # what the grid knows of its program
    UNKNOWN = "unknown"  # nobody: it counts as larger than any


class SpeedSource(StrEnum):
    """How a worker came to know the speed of its computer's cores."""

    BENCHMARK = "benchmark"  # measured as the agent started
    KEPT = "kept"  # measured by an earlier start, on the same computer and Python
    ASSUMED = "assumed"  # not measured


class Outcome(StrEnum):
    """How an attempt ended, as its worker saw it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the task's own doing: burns one of its max_attempts
    CANCELLED = "cancelled"  # killed because the master asked
    GIVEN_BACK = "given_back"  # the worker's or its owner's doing: burns nothing


def _bytes_from_json(value: object) -> object:
    return a2b_base64(value, strict_mode=True) if isinstance(value, str) else value


def _bytes_to_json(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


Data = Annotated[
    bytes,
    BeforeValidator(_bytes_from_json, json_schema_input_type=str),
    PlainSerializer(_bytes_to_json, return_type=str, when_used="json"),
]
"""Raw bytes; base64 in JSON."""

Stream = Literal["stdout", "stderr"]
"""What a task writes to."""
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")

NO_NUL = r"^[^\x00]*$"
"""What no database keeps."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""A worker's, label's or user's name: safe in a URL, a shell and a file system."""
PythonVersion = Annotated[str, Field(pattern=r"^\d{1,3}\.\d{1,3}$", examples=["3.11"])]
"""Major and minor: pickles of functions hold for these alone."""
FileName = Annotated[
    str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="an uploaded file, by its content", examples=[])
]
ShortText = Annotated[str, Field(max_length=500, pattern=NO_NUL)]
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_ID)]
Percent = Annotated[float, Field(ge=0, le=100)]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker's computer is: static for as long as the agent runs."""

    os: Annotated[str, Field(max_length=20, pattern=NO_NUL)]  # linux, macos, windows
    arch: Annotated[str, Field(max_length=20, pattern=NO_NUL)]  # x86_64, arm64
    python: Annotated[str, Field(max_length=20, pattern=NO_NUL)]  # 3.11.7
    agent: Annotated[str, Field(max_length=40, pattern=NO_NUL)]  # Loopline's version
    model: ShortText  # the processor's name; PCs of one model are one type
    cpus: Annotated[int, Field(ge=1, le=65536)]
    memory_bytes: Count
    slots: Annotated[int, Field(ge=1, le=65536)]  # the most it will ever offer
    labels: tuple[Name, ...] = ()
    speed: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0  # reference CPU-seconds per second
    network: bool = True  # tasks that ask for the network have it
    functions: PythonVersion | None = None  # that functions run under; None: it can run none
    speed_source: SpeedSource = SpeedSource.ASSUMED
    speed_measured_at: Seconds | None = None  # since 1970


@dataclass(frozen=True, slots=True)
class Prediction:
    """Work of one task to come of a program, in reference CPU-seconds, from its runs so far."""

    work: Seconds  # as likely less as more
    mean: Seconds  # so much a task, where many are added up
    p10: Seconds  # less than this in one case of ten ...
    p90: Seconds  # ... more than this in another
    runs: Count  # it is known from


@dataclass(slots=True)  # not frozen: one is made for each result
class Observation:
    """One run of a task to its success."""

    at: Seconds  # since 1970
    worker: str
    work: float  # reference CPU-seconds: time x speed x share of the processor that it could have
    wall_s: Seconds
    cpu_s: Seconds
    system_s: Seconds  # of these
    peak_memory_bytes: Count
    share: float = 1.0  # that it had of its slots; work without it is work / share


@dataclass(frozen=True, slots=True)
class Probation:
    """A worker is given nothing new for a while, and why; for the owner of its computer."""

    until: Seconds  # since 1970
    reason: ShortText


@dataclass(frozen=True, slots=True)
class Yielded:
    """How soon tasks stood still after the owner's input, since the agent started: measured, never estimated."""

    count: Count = 0
    p50_s: Seconds = 0.0
    p99_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker says about itself on every report: the piggybacked load information."""

    slots: Annotated[int, Field(ge=0, le=65536)]  # offered now, running attempts included
    spare_cpu: Seconds = 0.0  # cores that the owner leaves over, measured without our own processes
    memory_available_bytes: Count = 0
    disk_free_bytes: Count = 0
    cpu_pressure: Percent | None = None  # of the last 10 s, in which something waited for it; null: not measured
    memory_pressure: Percent | None = None
    io_pressure: Percent | None = None
    on_battery: bool = False
    in_use: bool = False  # somebody is at the desk, or nobody can tell
    idle_s: Seconds | None = None  # since the last input; null: nobody looks, or nobody can tell
    withheld: ShortText = ""  # why fewer slots are offered than there are
    yielded: Yielded = Yielded()
    delay_s: Seconds | None = None  # of the network, there and back; null: not known yet
    throughput_bytes_s: Annotated[float, Field(gt=0, le=1e15)] | None = None  # of files sent and fetched; null: none


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt that has begun at a worker, until its result is reported."""

    attempt: AttemptId
    wall_s: Seconds = 0.0  # for which it ran: what it stood frozen is left out
    cpu_s: Seconds = 0.0
    frozen: bool = False  # it stands still, for the owner's sake: a replica elsewhere may be quicker


@dataclass(frozen=True, slots=True)
class Output:
    """What an attempt wrote to stdout or stderr.

    ``size_bytes`` is what it wrote, of which at most the worker's cap was kept (``cut`` says that some was
    dropped). Kept bytes are in ``data``, or, where they are too many, in the blob ``sha256``.
    """

    size_bytes: Count = 0
    cut: bool = False
    data: Annotated[Data, Field(max_length=MAX_INLINE_BYTES)] = b""
    sha256: Sha256 | None = None


def _is_short(output: Output) -> Output:
    if len(output.data) > INLINE_LIMIT_BYTES:
        raise ValueError(f"more than {INLINE_LIMIT_BYTES} bytes inline")
    return output


Printed = Annotated[Output, AfterValidator(_is_short)]


@dataclass(frozen=True, slots=True)
class Function:
    """What every task of a job calls, in place of a command: a pickle, for one version of Python only."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    file: Annotated[FileName, Field(description="the function, by cloudpickle")]
    python: PythonVersion
    session: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9._-]{1,100}$", description="calls of one session may share an interpreter"),
    ]
    chunk: Annotated[int, Field(ge=1, le=MAX_CHUNK, description="each task makes so many calls")] | None = None
    """The last one makes the rest (protocol/chunks.py). None: each makes one call, whose value is its own."""
    calls: Annotated[int, Field(ge=1, le=MAX_ID, description="of all its tasks, where chunk is given")] | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a task finds in its scratch folder, by its content."""

    sha256: Sha256
    size_bytes: Count | None = None  # None: whoever has it knows
    executable: bool = False


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that a task left in its scratch folder, and that its job wants back."""

    path: RelativePath
    sha256: Sha256
    size_bytes: Count


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended: written to the worker's spool before it is sent."""

    attempt: AttemptId
    outcome: Outcome
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**32)] | None = None  # negative: killed by that signal
    reason: ShortText = ""  # for people, where the exit code does not say it all
    wall_s: Seconds = 0.0
    cpu_s: Seconds = 0.0  # user + system, of the whole process tree
    peak_memory_bytes: Count = 0
    stdout: Printed = Output()
    stderr: Printed = Output()
    outputs: Annotated[tuple[OutputFile, ...], Field(max_length=MAX_OUTPUT_FILES)] = ()
    value: Output | None = None  # what a function returned, or raised: a pickle
    system_s: Seconds = 0.0  # of cpu_s, what the system spent on its behalf; 0: not told apart
    agent_died: bool = False  # while it ran, without its computer: that may have been the task's doing
