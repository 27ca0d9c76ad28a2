"""The interface of launching: an attempt's tree of processes, and who starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import psutil

from loopline_worker.attempts.limits import Limits
from loopline_worker.supervisor.orders import Breach

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId, Output
    from loopline_worker.launch.sandbox import Sandbox
    from loopline_worker.launch.sinks import Sink, Target


@dataclass(slots=True)  # not frozen: that makes the making of one twice as dear
class Call:
    """A function to call in place of a command (loopline_worker/functions)."""

    session: str  # calls of one may be made by one interpreter
    function: str  # SHA-256 of its pickle
    arguments: str  # their pickle in base64, or its SHA-256 in ``arguments_file``
    environment: dict[str, str] = field(repr=False)  # what is its own of its job's
    arguments_file: str = ""
    count: int | None = (
        None  # of the calls that it makes, where they are several (loopline_shared/protocol/chunks.py)
    )

    @property
    def files(self) -> list[str]:
        return [self.function, *([self.arguments_file] if self.arguments_file else [])]


@dataclass(slots=True)  # not frozen: that makes the making of one twice as dear
class Job:
    """What to run, and where."""

    command: Sequence[str]
    folder: str  # a path, as text: of most nothing more is ever needed
    environment: dict[str, str] = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    network: bool = True  # a sandbox without it may be asked for
    call: Call | None = None  # in place of the command
    room: str = ""  # a folder round its own, which it may write to as well
    makes_folder: bool = False  # the launcher does, and removes it afterwards where nothing is left in it


@dataclass(slots=True)  # not frozen: that makes the making of one twice as dear
class Usage:
    """Of a whole tree, until now."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    processes: int = 0
    breach: Breach | None = None  # the limit that the system kept for us, once it was hit


@dataclass(slots=True)  # not frozen: that makes the making of one twice as dear
class Ended:
    """How a task went, said once nothing of its tree is left."""

    exit_code: int | None = None  # negative: killed by that signal
    killed: bool = False  # by us: it had not ended by itself
    refusal: str = ""  # the command could not be run: the job's own mistake
    trouble: str = ""  # nor could we: this computer's mistake
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0  # of the largest process, where the system says so
    breach: Breach | None = None  # as in Usage
    strays: int = 0  # processes that it left running, and that were killed
    reason: str = ""  # what it says itself of why it failed
    overhead_s: float = 0.0  # CPU time that watching over it took
    system_s: float = 0.0  # of cpu_s, what the system spent on its behalf
    folder_is_left: bool = True  # somebody has to remove it
    elapsed_s: float | None = None  # from its beginning to its end, standing still included; None: not measured
    value: Output | None = None  # what a function returned, where it is known without looking


class Tree(Protocol):
    """A task and all that it started."""

    def kill(self) -> None:
        """Kill all of it, at once. Does nothing where it has ended."""

    def freeze(self) -> None:
        """Stop all of it, until it is thawed or killed."""

    def thaw(self) -> None: ...

    def is_still(self) -> bool:
        """Whether nothing of it runs any more: a process that is to stop does so when it next has its turn."""

    def measure(self) -> Usage: ...

    def follow(self) -> None:
        """Somebody reads along: what it writes is wanted as it comes, not only at its end."""

    def count(self) -> int:
        """Living processes in it; 0 where that cannot be seen, or not yet."""

    async def wait(self) -> Ended:
        """Until nothing of it is left."""


class Patron(Protocol):
    """Who has tasks begun, or lined up: told of each by the name that it gave it."""

    def begins(self, name: AttemptId, before: AttemptId) -> None:
        """What was lined up begins, in the place of one that has ended and of which that is said next."""

    def ended(self, name: AttemptId, ended: Ended) -> None: ...

    def returned(self, names: Sequence[AttemptId]) -> None:
        """These were lined up, and will not begin."""

    def waits(self, name: AttemptId) -> None:
        """This one takes a while: its end is not told, but to be waited for."""


class Lines(Protocol):
    """Where tasks begin at once, and can be lined up: each begins the moment that one before it has ended, without
    a word from here.
    """

    def takes(self, job: Job) -> bool:
        """Else it has to be started (``Launcher.start``)."""

    def begin(self, patron: Patron, name: AttemptId, job: Job, stdout: Sink, stderr: Sink) -> Tree:
        """At once. OSError."""

    def line_up(self, patron: Patron, name: AttemptId, job: Job, stdout: Sink, stderr: Sink) -> Tree:
        """For the time when one of those that were begun has ended; only where there was ``room``. OSError."""

    def room(self) -> int:
        """How many more may be lined up now: as much as is done in some milliseconds."""

    def recall(self) -> None:
        """Nothing that is lined up begins from now on: it is returned. Of what began just now one is told later."""


class Launcher(Protocol):
    """Starts trees. OSError where this computer cannot."""

    @property
    def lines(self) -> Lines | None:
        """None: here nothing can be lined up."""

    async def start(self, job: Job, stdout: Target, stderr: Target) -> Tree:
        """Start a task that writes there; open files stay the caller's, to close."""

    def cpu_s(self) -> float:
        """CPU time of the launcher itself."""

    def close(self) -> None: ...


def make_launcher(yields: bool, sandbox: Sandbox | None = None) -> Launcher:
    """The one for this system; its tasks yield to the owner of the computer, or need not."""
    if sys.platform == "win32":
        from loopline_worker.launch.windows_launcher import WindowsLauncher

        return WindowsLauncher(yields)
    from loopline_worker.launch.posix import PosixLauncher

    return PosixLauncher(yields, sandbox)


def usage_of(pid: int, with_itself: bool = True) -> Usage:
    """A process and its living descendants: what psutil can say where there is no /proc."""
    cpu_s, memory_bytes, tree = 0.0, 0, list[psutil.Process]()
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        tree = [*([root] if with_itself else []), *root.children(recursive=True)]
        for process in tree:
            with suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s += times.user + times.system
                memory_bytes += process.memory_info().rss
    return Usage(cpu_s, memory_bytes, len(tree))
