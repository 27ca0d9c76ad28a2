"""What a task writes to stdout and stderr, on its way through its guard.

What is short is kept until the task ends and goes along with that news. What is long, or is being read along, is
passed on as it comes, and from then on nothing is kept: the pipe of a task whose reader is slow is full, as it should
be. Each task has pipes of its own, for what it does to them must not meet the next one. We keep them open for writing
as well: that a task closes them, mostly by ending, is nothing to wake up for.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline_worker.supervisor.selector import Wakeup

MOST_KEPT_BYTES = 4096
"""Of both together."""
_PART_BYTES = 65536
_MOST_PARTS = 16
"""As much as a pipe holds that a task has made as long as it may."""


class Relay:
    """Of one task; ``pass_on`` is given what was written to stdout, and to stderr."""

    def __init__(self, wakeup: Wakeup, pass_on: Callable[[bytes, bytes], None]) -> None:
        self._wakeup = wakeup
        self._pass_on = pass_on
        self._kept = bytearray(), bytearray()
        self._reads: dict[int, bytearray] = {}  # ends that we read from
        self._writes: list[int] = []
        self._is_watched = False
        self._is_followed = False

    def open(self) -> list[int]:
        """The ends to write to. OSError where there can be none."""
        for kept in self._kept:
            read, write = os.pipe()
            self._reads[read] = kept
            self._writes.append(write)
            os.set_blocking(read, False)
        return self._writes

    def watch(self) -> None:
        """From now on, what is written wakes up. What is written earlier is read all the same."""
        if not self._is_watched:
            self._is_watched = True
            for end in self._reads:
                self._wakeup.watch(end)

    def follow(self) -> None:
        """Keep nothing back any more."""
        self._is_followed = True
        self.watch()
        self._flow()

    def read(self, ready: list[int]) -> None:
        """What these files have, as far as they are ours."""
        for end in ready:
            if end in self._reads:
                self._read(end)
                self._flow()

    def close(self) -> tuple[bytes, bytes]:
        """What is left, once nobody of the task writes any more; whoever else still might is not waited for."""
        for end in self._writes:
            os.close(end)
        for end in self._reads:
            for _ in range(_MOST_PARTS):
                if not self._read(end):
                    break
                self._flow()
            if self._is_watched:
                self._wakeup.forget(end)
            os.close(end)
        return self._take()

    def _read(self, end: int) -> bool:
        """Whether there may be more."""
        try:
            part = os.read(end, _PART_BYTES)
        except BlockingIOError:
            return False
        self._reads[end] += part
        return bool(part)

    def _flow(self) -> None:
        size_bytes = len(self._kept[0]) + len(self._kept[1])
        if size_bytes > MOST_KEPT_BYTES or (self._is_followed and size_bytes):
            self._is_followed = True
            self._pass_on(*self._take())

    def _take(self) -> tuple[bytes, bytes]:
        stdout, stderr = bytes(self._kept[0]), bytes(self._kept[1])
        for kept in self._kept:
            kept.clear()
        return stdout, stderr
