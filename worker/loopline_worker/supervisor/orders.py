"""Orders of the agent to a supervisor. Both ends import this file, so that a new limit is one field here."""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from typing import Any

_FIELDS = (  # in the order of the parameters of ``TaskOrder``
    "command", "folder", "environment", "sandbox", "makes_folder",
    "memory_bytes", "processes", "file_bytes", "user_threads",
)  # fmt: skip
_values = attrgetter(*_FIELDS)


class Breach(StrEnum):
    """A limit that a task exceeded, by the word that stands for it in messages."""

    MEMORY = "memory"
    PROCESSES = "processes"
    SCRATCH = "scratch"
    OUTPUT = "output"


class TaskOrder:
    """Task for a supervisor: what to run, where, and within which limits (None for unlimited).

    It is written by hand because importing ``dataclasses`` would double what a supervisor's process loads.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        command: list[str],
        folder: str,
        environment: dict[str, str],
        sandbox: list[str],
        makes_folder: bool,
        memory_bytes: int | None = None,
        processes: int | None = None,
        file_bytes: int | None = None,
        user_threads: int | None = None,
    ) -> None:
        self.command = command
        self.folder = folder
        self.environment = environment
        self.sandbox = sandbox  # the program that runs the command in one, and its options; empty: no sandbox
        self.makes_folder = makes_folder  # the supervisor makes the folder, and recycles it if it is left empty
        self.memory_bytes = memory_bytes
        self.processes = processes
        self.file_bytes = file_bytes  # of a single file (RLIMIT_FSIZE)
        self.user_threads = user_threads  # of the whole user (RLIMIT_NPROC)

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the fields in their order, for ``marshal``, which takes built-in types only."""
        return _values(self)

    @classmethod
    def from_tuple(cls, fields: tuple[Any, ...]) -> TaskOrder:
        """Return the order that ``to_tuple`` made these fields of."""
        return cls(*fields)
