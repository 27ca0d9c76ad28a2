"""The vocabulary of Loopline: ids, states, and a worker's reports about itself and its attempts.

The classes are frozen dataclasses with slots: cheap in the pure parts, and validated by pydantic at every edge.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from operator import not_
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer

from loopline_shared.ids_and_states import MAX_ID as MAX_ID
from loopline_shared.ids_and_states import AttemptId as AttemptId
from loopline_shared.ids_and_states import JobState as JobState
from loopline_shared.ids_and_states import Order as Order
from loopline_shared.ids_and_states import OrderWithin as OrderWithin
from loopline_shared.ids_and_states import TaskId as TaskId
from loopline_shared.ids_and_states import TaskState as TaskState
from loopline_shared.paths import MAX_PATH_CHARACTERS, RelativePath
from loopline_shared.protocol.attempt_figures import EnergySource, Joules, Left
from loopline_shared.protocol.gpus import MAX_GPUS, Gpu, GpuId
from loopline_shared.protocol.host_link import HostLink

INLINE_LIMIT_BYTES = 4096
"""Longest output that travels inside its result; longer output is a blob named by its SHA-256."""
MAX_INLINE_BYTES = 64 * 1024  # longest return values inside the result of a task that makes several calls
MAX_CHUNK = 1_000_000  # calls of one task
MAX_OWN_INPUTS = 100  # files of one task, beside those that its job's tasks share
MAX_OUTPUT_PATTERNS = 100
MAX_OUTPUT_FILES = 1000  # that an attempt brings back: their names travel inside its result
MAX_OUTPUT_NAMES = 100_000  # characters of those names altogether

AfterState = Literal["succeeded", "ended", "failed"]
"""State that the jobs before a job must have reached, so that it enters the grid; failed: or cancelled."""
_REACHED: dict[AfterState, tuple[JobState, ...]] = {
    "succeeded": (JobState.SUCCEEDED,),
    "ended": (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED),
    "failed": (JobState.FAILED, JobState.CANCELLED),
}


def is_reached(awaited: AfterState, state: JobState) -> bool:
    """True if a job in this state lets those enter the grid that come after it."""
    return state in _REACHED[awaited]


class AttemptState(StrEnum):
    DISPATCHED = "dispatched"  # to begin at once
    PREFETCHED = "prefetched"  # dispatched, to wait at its worker for a slot
    PREPARED = "prepared"  # a gang's member, ready at its worker: it waits for the word to start
    RUNNING = "running"
    FROZEN = "frozen"  # it has begun, and is frozen for the sake of the computer's owner
    DELIVERING = "delivering"  # it has ended and takes up no slot; its result is on the way to the master
    FINISHED = "finished"  # a gang's member that has ended well; its gang continues
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLING = "cancelling"  # its cancel is on the way; it takes up its slots until it is gone
    RETRACTING = "retracting"  # the same of one that waits at its worker, and takes up none
    CANCELLED = "cancelled"
    LOST = "lost"


class SizeSource(StrEnum):
    """Source of a job's size; stamped with the size when the job enters the grid."""

    GIVEN = "given"  # its user
    PREDICTED = "predicted"  # the program's past runs
    UNKNOWN = "unknown"  # it has none, so later jobs may finish first


class SpeedSource(StrEnum):
    """Source of the speed of a worker's cores."""

    BENCHMARK = "benchmark"  # measured as the agent started
    KEPT = "kept"  # measured by an earlier start, on the same computer and Python
    ASSUMED = "assumed"  # not measured


class Outcome(StrEnum):
    """End of an attempt, as its worker saw it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # because of the task: uses up one of its max_attempts
    CANCELLED = "cancelled"  # killed because the master asked
    GIVEN_BACK = "given_back"  # preempted by the worker or its owner: uses up no attempt


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

Stream = Literal["stdout", "stderr"]  # of a task
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")

NO_NUL = r"^[^\x00]*$"
"""Pattern of text without NUL, which databases reject."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Name of a worker, label or user: safe in a URL, a shell and a file system."""
PythonVersion = Annotated[str, Field(pattern=r"^\d{1,3}\.\d{1,3}$", examples=["3.11"])]
"""Major and minor version of Python: pickles of functions are valid for one of them only."""
FileName = Annotated[
    str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="an uploaded file, by its content", examples=[])
]
SharedFolder = Annotated[str, Field(max_length=1000, pattern=r"^(/[^\x00-\x1f\x7f]*)?$")]
"""Absolute path of a folder that several computers have under this path; empty: none."""
ShortText = Annotated[str, Field(max_length=500, pattern=NO_NUL)]
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_ID)]
Progress = Annotated[float | None, Field(ge=0, le=1, exclude_if=not_)]
"""Part of a task that is done, as its program tells it; None: it does not, or has not begun."""
Slot = Annotated[int, Field(ge=0, le=65_536, exclude_if=not_)]  # from 1; 0: not said
Percent = Annotated[float, Field(ge=0, le=100)]


Units = Annotated[int, Field(ge=1, le=1_000_000)]
"""Number of units of something countable."""


def _each_once(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    if len({gpu.id for gpu in gpus}) < len(gpus):
        raise ValueError("two GPUs have the same id")
    return gpus


@dataclass(frozen=True, slots=True)
class Resource:
    """Something countable that a worker offers to tasks, such as two licence dongles."""

    name: Name
    units: Units  # that tasks may hold at once
    gpus: Annotated[
        tuple[Gpu, ...],
        Field(max_length=MAX_GPUS, exclude_if=not_, description="the units themselves, if they are GPUs"),
        AfterValidator(_each_once),
    ] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a worker's computer, constant while the agent runs."""

    os: Annotated[str, Field(max_length=20, pattern=NO_NUL)]  # linux, macos, windows
    arch: Annotated[str, Field(max_length=20, pattern=NO_NUL)]  # x86_64, arm64
    python: Annotated[str, Field(max_length=20, pattern=NO_NUL)]  # 3.11.7
    agent: Annotated[str, Field(max_length=40, pattern=NO_NUL)]  # Loopline's version
    model: ShortText  # the processor's name; PCs of one model are one type
    _: KW_ONLY
    cpus: Annotated[int, Field(ge=1, le=65536)]
    memory_bytes: Count
    slots: Annotated[int, Field(ge=1, le=65536)]  # the most it will ever offer
    labels: tuple[Name, ...] = ()
    speed: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0  # reference CPU-seconds per second
    network: bool = True  # tasks that request the network get it
    functions: PythonVersion | None = None  # for functions; None: it cannot run functions
    speed_source: SpeedSource = SpeedSource.ASSUMED
    speed_measured_at: Seconds | None = None  # since 1970
    folders: tuple[SharedFolder, ...] = ()  # in which, and below which, commands may run
    gangs: bool = False  # this agent can prepare members of gangs
    address: Annotated[str, Field(max_length=255, pattern=NO_NUL)] = ""  # at which other members reach it
    sandbox: Annotated[str, Field(max_length=20, pattern=NO_NUL)] = ""  # around tasks; empty: none
    link: HostLink | None = None  # its network card; None: unknown
    gang_network: bool = False  # members of gangs that request the network reach one another
    until: Seconds | None = None  # since 1970: when it has to end, as a cluster's allocation does; None: it stays
    software: tuple[Name, ...] = ()  # that it can provide for tasks (protocol/software.py)
    machine: Annotated[str, Field(max_length=64, pattern=NO_NUL)] = ""
    """Told from a copy of it by this; the same until the computer is started again. Empty: unknown."""
    transient: bool = False  # it comes once under this name: it is forgotten as soon as it is gone
    resources: Annotated[tuple[Resource, ...], Field(max_length=50)] = ()  # in the order of their names
    fences: bool = False  # it ends attempts with a term if the master falls silent
    energy: Annotated[
        tuple[EnergySource, ...],
        Field(max_length=len(EnergySource), exclude_if=not_, description="how it finds the energy of attempts"),
    ] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted work of a program's next task, in reference CPU-seconds, from its runs so far."""

    work: Seconds  # median
    mean: Seconds  # mean, for sums over many tasks
    p10: Seconds  # 10th percentile
    p90: Seconds  # 90th percentile
    runs: Count  # that the prediction is based on


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Quarantine of a worker: the end of it and the reason, shown to the PC's owner."""

    until: Seconds  # since 1970
    reason: ShortText


@dataclass(frozen=True, slots=True)
class Yielded:
    """Measured delays from the owner's input to frozen tasks, since the agent started."""

    count: Count = 0
    p50_s: Seconds = 0.0
    p99_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class WithheldGpu:
    """A GPU that its worker does not offer now."""

    id: GpuId
    reason: ShortText


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a worker, piggybacked on every report."""

    slots: Annotated[int, Field(ge=0, le=65536)]  # offered now, running attempts included
    spare_cpu: Seconds = 0.0  # cores that the owner does not use, our own processes excluded
    memory_available_bytes: Count = 0
    disk_free_bytes: Count = 0
    _: KW_ONLY
    cpu_pressure: Percent | None = None  # of the last 10 s, in which something waited for it; null: not measured
    memory_pressure: Percent | None = None
    io_pressure: Percent | None = None
    on_battery: bool = False
    in_use: bool = False  # the owner is at the PC, or this is unknown
    idle_s: Seconds | None = None  # since the last input; null: unknown
    withheld: ShortText = ""  # why fewer slots are offered than there are
    yielded: Yielded = Yielded()
    delay_s: Seconds | None = None  # of the network, there and back; null: not known yet
    throughput_bytes_s: Annotated[float, Field(gt=0, le=1e15)] | None = None  # of files sent and fetched; null: none
    preparing: Annotated[tuple[tuple[Count, ShortText], ...], Field(max_length=65_536, fail_fast=True)] = ()  # by job
    withheld_gpus: Annotated[
        tuple[WithheldGpu, ...],
        Field(max_length=MAX_GPUS, exclude_if=not_, description="that no task may have now"),
    ] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt that has begun at a worker and takes up its slots."""

    attempt: AttemptId
    wall_s: Seconds = 0.0  # run time, frozen time excluded; 0 until its inputs and its software are there
    cpu_s: Seconds = 0.0
    frozen: bool = False  # frozen for the owner's sake: a replica elsewhere may be quicker
    slot: Slot = 0  # the lowest of those that it has
    in_slot_s: Annotated[Seconds, Field(exclude_if=not_)] = 0.0  # since it took its slot; 0: for as long as it ran
    progress: Progress = None

    @property
    def is_set_up(self) -> bool:
        """True if its inputs and its software are there."""
        return self.wall_s > 0 or not self.in_slot_s


@dataclass(frozen=True, slots=True)
class Phases:
    """When the phases of an attempt were over: seconds since it took its slot, by its worker's clock."""

    inputs_s: Seconds  # its inputs and its software were there
    began_s: Seconds  # its process began
    ended_s: Seconds  # its last process was gone
    frozen_s: Annotated[Seconds, Field(exclude_if=not_)] = 0.0  # how long its process was frozen between the two
    delivered_s: Annotated[Seconds, Field(exclude_if=not_)] = 0.0  # the master had its outputs; 0: there were none

    @property
    def deliver_s(self) -> float:
        """Time from the end of its last process until the master had its outputs."""
        return max(0.0, self.delivered_s - self.ended_s)


@dataclass(frozen=True, slots=True)
class Output:
    """Output of an attempt on stdout or stderr.

    ``size_bytes`` is the whole output's size, of which the worker's cap was kept (``cut`` is true if some was
    dropped). Kept bytes are in ``data`` or, where they are too many, in the blob ``sha256``.
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
    """Function that the tasks of a job call instead of a command: a pickle, for one version of Python only."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    file: Annotated[FileName, Field(description="the function, by cloudpickle")]
    python: PythonVersion
    session: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$", description="calls of one session may share an interpreter")
    ]
    chunk: Annotated[int, Field(ge=1, le=MAX_CHUNK, description="number of calls that each task makes")] | None = None
    """The last one makes the rest (protocol/chunks.py). None: each makes one call, whose value is its own."""
    calls: Annotated[int, Field(ge=1, le=MAX_ID, description="of all its tasks, where chunk is given")] | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file in a task's scratch folder, named by its content."""

    sha256: Sha256
    size_bytes: Count | None = None  # None: unknown here
    executable: bool = False


@dataclass(frozen=True, slots=True)
class InputLink:
    """A symbolic link in a task's scratch folder."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    link: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_PATH_CHARACTERS,
            pattern=r"^[^/\\\x00-\x1f\x7f][^\\\x00-\x1f\x7f]*$",
            description="where it leads, relative to its own folder: ../data/x.csv",
        ),
    ]


@dataclass(frozen=True, slots=True)
class InputFolder:
    """An empty folder in a task's scratch folder. Other folders follow from the files in them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    folder: Annotated[Literal[True], Field(description="always true")]


StagedInput = InputFile | InputLink | InputFolder


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file left in a task's scratch folder that matches the job's outputs."""

    path: RelativePath
    sha256: Sha256
    size_bytes: Count
    executable: Annotated[bool, Field(exclude_if=not_)] = False


@dataclass(frozen=True, slots=True)
class Result:
    """End of an attempt with its output, written to the worker's spool before it is sent."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(defer_build=True)
    attempt: AttemptId
    outcome: Outcome
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**32)] | None = None  # negative: killed by that signal
    reason: ShortText = ""  # explanation beyond the exit code
    wall_s: Seconds = 0.0
    cpu_s: Seconds = 0.0  # user + system, of the whole process tree
    peak_memory_bytes: Count = 0
    stdout: Printed = Output()
    stderr: Printed = Output()
    outputs: Annotated[tuple[OutputFile, ...], Field(max_length=MAX_OUTPUT_FILES, fail_fast=True)] = ()
    """Of a failed task: the files that it left and that match, kept for `fetch --failed`."""
    value: Output | None = None  # a function's return value or exception: a pickle
    system_s: Seconds = 0.0  # system part of cpu_s; 0: unknown
    took_down: bool = False  # its agent, supervisor or sandbox ended or failed, perhaps because of the task
    metrics: Left = None
    slot: Slot = 0
    phases: Annotated[Phases | None, Field(exclude_if=not_)] = None
    """None: it had all that it needed as it took its slot, and ran without a freeze; or its worker does not say."""
    is_final: Annotated[bool, Field(exclude_if=not_)] = False
    """The task failed in a way that another attempt would repeat, such as without its output."""
    joules: Joules = None
