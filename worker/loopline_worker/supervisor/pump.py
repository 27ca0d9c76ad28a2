"""The pump that carries a task's output, stdout and stderr, through its supervisor to the agent.

Short output is kept until the task ends and travels with the report of the end. Long output, or output with a
follower, is passed on as it comes, and nothing is kept from then on: if the reader is slow the task's pipe fills up,
as it should. Each task has its own pipes, because its changes to them must not affect the next task. The supervisor
keeps the ends for writing open, too: that a task closes them, mostly by ending, is no reason to wake up.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline_worker.supervisor.selector import Selector

MOST_KEPT_BYTES = 4096
"""Limit for stdout and stderr together."""
_PART_BYTES = 65536
_MOST_PARTS = 16
"""Together as much as a pipe holds that a task has made as long as it may."""


class Pump:
    """Pumps the output of one task; ``pass_on`` receives what was written to stdout, and to stderr."""

    def __init__(self, selector: Selector, pass_on: Callable[[bytes, bytes], None]) -> None:
        self._selector = selector
        self._pass_on = pass_on
        self._kept = bytearray(), bytearray()
        self._reads: dict[int, bytearray] = {}  # ends to read from
        self._writes: list[int] = []
        self._is_watched = False
        self._is_followed = False

    def open(self) -> list[int]:
        """Return the ends that the task writes to. Raises OSError if there are no file descriptors left."""
        for kept in self._kept:
            read, write = os.pipe()
            self._reads[read] = kept
            self._writes.append(write)
            os.set_blocking(read, False)
        return self._writes

    def watch(self) -> None:
        """Have output wake up the supervisor from now on. Earlier output is read all the same."""
        if not self._is_watched:
            self._is_watched = True
            for end in self._reads:
                self._selector.watch(end)

    def follow(self) -> None:
        """Pass all output on at once from now on."""
        self._is_followed = True
        self.watch()
        self._flow()

    def read(self, ready: list[int]) -> None:
        """Read from those of these files that are this pump's."""
        for end in ready:
            if end in self._reads:
                self._read(end)
                self._flow()

    def close(self) -> tuple[bytes, bytes]:
        """Close the pipes and return the rest, once no process of the task writes any more.

        Writers outside the task that inherited its stdout are not waited for.
        """
        for end in self._writes:
            os.close(end)
        for end in self._reads:
            for _ in range(_MOST_PARTS):
                if not self._read(end):
                    break
                self._flow()
            if self._is_watched:
                self._selector.unwatch(end)
            os.close(end)
        return self._pop_kept()

    def _read(self, end: int) -> bool:
        """Read one part. True if there may be more."""
        try:
            part = os.read(end, _PART_BYTES)
        except BlockingIOError:
            return False
        self._reads[end] += part
        return len(part) == _PART_BYTES

    def _flow(self) -> None:
        size_bytes = len(self._kept[0]) + len(self._kept[1])
        if size_bytes > MOST_KEPT_BYTES or (self._is_followed and size_bytes):
            self._is_followed = True
            self._pass_on(*self._pop_kept())

    def _pop_kept(self) -> tuple[bytes, bytes]:
        stdout, stderr = bytes(self._kept[0]), bytes(self._kept[1])
        for kept in self._kept:
            kept.clear()
        return stdout, stderr
