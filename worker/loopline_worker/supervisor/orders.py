"""Orders of the agent to a supervisor: their fields, their messages, and the tokens that claim them.

Both ends import this file, so that a new limit is one field here. Messages are marshalled, which costs least: both
ends run the same Python.

A supervisor *claims* an order before it starts it, and the agent can retract what was not claimed. The agent holds
both ends of the socket that carries the tokens, and retracts all unclaimed orders in a single read. Each token is
read by one of the two, so that the owner of an order is always known, without a question or a wait. The tokens are in
a socket because a task could open a pipe of its supervisor through /proc.
"""

from __future__ import annotations

import marshal
import os
import socket
from contextlib import suppress
from enum import StrEnum
from operator import attrgetter

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from typing import Any

    from loopline_worker.supervisor.walls.namespaces import Places

    Needs = tuple[int | None, int | None, list[str] | None, list[str] | None, list[str] | None]

_FIELDS = (  # in the order of the parameters of ``TaskOrder``
    "command", "folder", "environment", "makes_folder", "memory_bytes", "processes",
    "file_bytes", "user_threads", "paths", "cell", "walls", "places", "reaches", "open_hosts", "ends_at", "has_gpus",
)  # fmt: skip
_values = attrgetter(*_FIELDS)
_SIZE_BYTES = 4
_TOKEN_BYTES = 8


class Breach(StrEnum):
    """A limit that a task exceeded, by the word that stands for it in messages."""

    MEMORY = "memory"
    PROCESSES = "processes"
    SCRATCH = "scratch"
    OUTPUT = "output"


class TaskOrder:
    """Task for a supervisor: the command, its folder and its limits (None for unlimited).

    It is written by hand because importing ``dataclasses`` would double what a supervisor's process loads.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        command: list[str],
        folder: str,
        environment: dict[str, str],
        makes_folder: bool,
        memory_bytes: int | None = None,
        processes: int | None = None,
        file_bytes: int | None = None,
        user_threads: int | None = None,
        paths: dict[str, bool] | None = None,
        cell: int = 0,
        walls: list[str] | None = None,
        places: Places | None = None,
        reaches: list[str] | None = None,
        open_hosts: list[str] | None = None,
        ends_at: float | None = None,
        has_gpus: bool = False,
    ) -> None:
        self.command = command
        self.folder = folder
        self.environment = environment
        self.makes_folder = makes_folder  # the supervisor makes the folder, and recycles it if it is left empty
        self.memory_bytes = memory_bytes
        self.processes = processes
        self.file_bytes = file_bytes  # of a single file (RLIMIT_FSIZE)
        self.user_threads = user_threads  # of the whole user (RLIMIT_NPROC)
        self.paths = paths  # paths it may read and, if True, write, under Landlock; None: those of its user
        self.cell = cell  # the number of the sandbox that it runs in (``walls/cell.py``); 0: in none
        self.walls = walls  # the program that makes that, with its options; None: the supervisor has had them before
        self.places = places  # its own mounts in the cell
        self.reaches = reaches  # all computers that it may connect to; None: no such limit
        self.open_hosts = open_hosts  # reachable although they are this computer or link-local
        self.ends_at = ends_at  # it is killed then, by the clock since boot; None: never
        self.has_gpus = has_gpus  # a user of its own is in the groups that may open them

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the fields in their order, for ``marshal``, which takes built-in types only."""
        return _values(self)

    def needs(self) -> Needs:
        """Return what the supervisor has to set for it, wherever it runs: limits of the group, connections."""
        writable = [path for path, writes in self.paths.items() if writes] if self.paths else None
        return self.memory_bytes, self.processes, self.open_hosts, self.reaches, writable

    @classmethod
    def from_tuple(cls, fields: tuple[Any, ...]) -> TaskOrder:
        """Return the order that ``to_tuple`` made these fields of."""
        return cls(*fields)


def pack(message: Any) -> bytes:
    """Return the message as bytes, its size first."""
    body = marshal.dumps(message)
    return len(body).to_bytes(_SIZE_BYTES, "big") + body


class Unpacker:
    """Turns received bytes back into messages."""

    def __init__(self) -> None:
        self._received = b""

    @property
    def rest(self) -> bytes:
        """Bytes received of later messages."""
        return self._received

    def feed(self, part: bytes) -> None:
        """Add bytes that were received."""
        self._received += part

    def next(self) -> Any:
        """Return the next message; None until it has arrived as a whole."""
        size = int.from_bytes(self._received[:_SIZE_BYTES], "big") + _SIZE_BYTES
        if not self._received or len(self._received) < size:
            return None
        message = marshal.loads(self._received[_SIZE_BYTES:size])  # noqa: S302 - from our own processes alone
        self._received = self._received[size:]
        return message


_ALL_BYTES = 2**16
"""More than there ever is: a supervisor has a few orders."""


class Claims:
    """The agent's side of the claim tokens of one supervisor. Tokens are numbers that only ever grow."""

    def __init__(self) -> None:
        """Raises OSError if there is no file descriptor left."""
        self.supervisors_end, self._end = (end.detach() for end in socket.socketpair())
        os.set_blocking(self.supervisors_end, False)

    def offer(self, numbers: list[int]) -> None:
        """Let the supervisor claim the orders with these numbers."""
        if numbers:
            os.write(self._end, b"".join(number.to_bytes(_TOKEN_BYTES, "big") for number in numbers))

    def retract(self) -> list[int]:
        """Take back the unclaimed numbers, which cannot be claimed any more. Return them, the first first."""
        taken = b""
        with suppress(BlockingIOError):
            taken = os.read(self.supervisors_end, _ALL_BYTES)
        starts = range(0, len(taken), _TOKEN_BYTES)
        return [int.from_bytes(taken[start : start + _TOKEN_BYTES], "big") for start in starts]

    def close(self) -> None:
        """Close both ends."""
        os.close(self.supervisors_end)
        os.close(self._end)


def claim(end: int) -> int:
    """Claim the next order, on the supervisor's end. Return its number, or 0 if there is none."""
    try:
        return int.from_bytes(os.read(end, _TOKEN_BYTES), "big")
    except BlockingIOError:
        return 0
