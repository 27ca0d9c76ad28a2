"""The interface of launching: the job, its process tree, and its launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from loopline_worker.supervisor.orders import Breach

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId, Output
    from loopline_worker.launch.sinks import Sink, Target

LIBRARIES = "/dev/nvidia-driver"
"""Folder with the libraries of a driver in tasks of images: of the computer's folders, these have /dev."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an attempt; None: unlimited."""

    memory_bytes: int | None = None
    processes: int | None = None  # threads included where the kernel counts them
    scratch_bytes: int | None = None
    output_bytes: int | None = None  # written to stdout or stderr, kept or not
    cores: int | None = None  # kept on Windows only: elsewhere tasks yield
    asks_for_memory: bool = False  # its job does
    value_bytes: int | None = None  # the value of a function; longer values are cut

    def words(self, breach: Breach) -> str:
        """Return why the task is stopped, naming the limit and where it is set."""
        if breach is Breach.MEMORY:
            whose = "requires.memory_bytes of its job"
            if not self.asks_for_memory:
                whose = "this worker's limit for a task whose job does not say requires.memory_bytes"
            return f"stopped: more than {_size(self.memory_bytes)} of memory ({whose})"
        if breach is Breach.PROCESSES:
            return (
                f"stopped: {self.processes} processes and threads, and asking for more (max_processes of this worker)"
            )
        if breach is Breach.SCRATCH:
            return f"stopped: more than {_size(self.scratch_bytes)} on disk (scratch_limit_bytes of this worker)"
        return f"stopped: more than {_size(self.output_bytes)} of output (output_flood_bytes of this worker)"


# The records below are made for every task and not frozen: freezing makes the making of one twice as expensive.


@dataclass(slots=True)
class Call:
    """A function to call in place of a command (loopline_worker/functions)."""

    session: str  # calls of one session may share an interpreter
    function: str  # SHA-256 of its pickle
    arguments: str  # their pickle in base64, or its SHA-256 in ``arguments_file``
    environment: dict[str, str] = field(repr=False)  # the task's own variables, without its job's
    arguments_file: str = ""
    count: int | None = None  # of the calls of a chunk (loopline_shared/protocol/chunks.py); None: a single call

    @property
    def files(self) -> list[str]:
        """SHA-256 of each file that the call needs."""
        return [self.function, *([self.arguments_file] if self.arguments_file else [])]


@dataclass(slots=True)
class Job:
    """Task for a launcher: the command, its folder and its limits."""

    command: Sequence[str]
    folder: str  # a path, as text: of most nothing more is ever needed
    environment: dict[str, str] = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    network: bool = True  # it asks for the network, which a sandbox may grant to those alone
    may_request_network: bool = False  # its sandbox gives it no network, but would on request, as ``walls`` finds
    hosts: Sequence[str] = ()  # of a gang: the computers of its members
    call: Call | None = None  # in place of the command
    room: str = ""  # the folder around its own, which the task may write to as well
    shared_folder: str = ""  # the command's working folder
    software: str = ""  # key of the environment that it runs in
    shown: tuple[str, ...] = ()  # paths that it may read besides, such as its environment
    root: str = ""  # the folder that it has as /, with the files of an image; empty: the computer's own
    python: str = ""  # that calls run under; empty: the worker's
    makes_folder: bool = False  # the launcher makes the folder, and removes it afterwards if nothing was left in it
    gpus: tuple[str, ...] = ()  # ids of its GPUs
    device_files: tuple[str, ...] = ()  # that it may open besides, as its GPUs need
    libraries: Mapping[str, str] = field(default_factory=dict)  # for the files of an image, by name: their paths here
    ends_at: float | None = None  # the supervisor kills it then, by the clock since boot; None: never
    pipes_output: bool = False  # it writes to pipes of the agent's own: none of it passes through its supervisor


@dataclass(slots=True)
class Usage:
    """Resources that a whole tree has used until now."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    processes: int = 0
    breach: Breach | None = None  # the limit that the task hit, if the system enforces it
    pids: Sequence[int] = ()  # of its living processes, where they can be looked into
    memory_is_kept: bool = False  # within its limit, by the system


@dataclass(slots=True)
class Ended:
    """End of a task, reported once nothing of its tree is left."""

    exit_code: int | None = None  # negative: killed by that signal
    killed: bool = False  # by the agent, before it ended by itself
    refusal: str = ""  # the command could not be run: the job's own mistake
    trouble: str = ""  # the task could not be run: this computer's mistake
    took_down: bool = False  # the task took down its supervisor or sandbox; another one is started
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0  # of the largest process, if the system reports it
    breach: Breach | None = None  # as in Usage
    strays: int = 0  # processes that it left running, and that were killed
    reason: str = ""  # the task's own explanation of its failure
    overhead_s: float = 0.0  # CPU time of its supervisor
    system_s: float = 0.0  # part of cpu_s that the kernel used on its behalf
    folder_is_left: bool = True  # the folder must be removed by the agent
    elapsed_s: float | None = None  # from start to end, frozen time included; None: not measured
    value: Output | None = None  # the value of a function, if no file holds it
    expired: bool = False  # killed at ``Job.ends_at``


class Tree(Protocol):
    """A task with all processes that it has started."""

    @property
    def has_ended(self) -> bool:
        """True once all its processes are gone, which ``wait`` returns a moment later."""

    def kill(self) -> None:
        """Kill all of it at once. Does nothing if it has ended."""

    def terminate(self) -> None:
        """Ask all of it to end (SIGTERM); where there is no way to ask, kill it."""

    def freeze(self) -> None:
        """Stop all of it, until it is thawed or killed."""

    def thaw(self) -> None:
        """Let it go on."""

    def extend(self, ends_at: float) -> None:
        """Have the supervisor kill it then, and no earlier (``Job.ends_at``), where it can."""

    def lend(self, folder: str) -> None:
        """Let its processes use a folder that the agent made, if they have a user of their own. Raises OSError."""

    def is_still(self) -> bool:
        """True if no process of it runs any more: a stopped process stops when it next has its turn."""

    def measure(self) -> Usage:
        """Return what it has used until now."""

    def follow(self) -> None:
        """Pass its output on as it comes from now on, because it has a reader."""

    def count(self) -> int:
        """Return the number of its living processes; 0 if that is unknown."""

    async def wait(self) -> Ended:
        """Wait until nothing of it is left."""


class PrefetchListener(Protocol):
    """Listener to prefetched tasks, each under the name that it was prefetched with."""

    def begins(self, name: AttemptId, before: AttemptId) -> None:
        """Learn that a task has started in the slot of another, which has ended."""

    def returned(self, names: Sequence[AttemptId]) -> None:
        """Receive retracted tasks: they will not start, and count as killed."""


class Prefetching(Protocol):
    """The part of a launcher that prefetches commands.

    A prefetched task starts as soon as one before it has ended, without a message from the agent.
    """

    def prefetch(self, listener: PrefetchListener, name: AttemptId, job: Job, stdout: Sink, stderr: Sink) -> Tree:
        """Prefetch a task behind a running one; requires ``room``. Raises OSError."""

    def room(self) -> int:
        """Return how many more tasks may be prefetched now: as many as run in some milliseconds."""

    def retract(self) -> None:
        """Retract all prefetched tasks: they are ``returned``. One that has just started is reported later."""


class Launcher(Protocol):
    """Starts trees. Its methods raise OSError if this computer cannot."""

    @property
    def prefetching(self) -> Prefetching | None:
        """The part that can prefetch; None on a system without one."""

    async def start(self, job: Job, stdout: Target, stderr: Target, name: AttemptId | None = None) -> Tree:
        """Start a task that writes to these targets; open files remain the caller's, to close.

        Tasks may be prefetched behind a command that has a ``name``, and whose folder the launcher makes.
        """

    def cpu_s(self) -> float:
        """Return the CPU time of the launcher's own processes."""

    def prepare(self) -> None:
        """Start those processes of its own that the first task would wait for."""

    def close(self) -> None:
        """Kill what still runs, and end the launcher's own processes."""


def _size(limit_bytes: int | None) -> str:
    size, unit = float(limit_bytes or 0), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"
