"""Which of the orders that a guard has may begin, and when: the guard draws a ticket for each task that it begins.

The agent holds both ends, and may take back what has not been drawn, all of it in one read: a ticket is read by one
of the two, and of what is left the guard has none. So there is never a doubt about who has it, and nobody has to be
asked or waited for. They are in a socket, for a task could open a pipe of its guard's by way of /proc.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_SIZE_BYTES = 8
_ALL_BYTES = 2**16
"""More than there ever is: a line has a few orders."""


class Tickets:
    """The agent's, for one guard; numbers that only ever grow."""

    def __init__(self) -> None:
        """OSError where there is no file descriptor left."""
        self.drawn_from, self._end = (end.detach() for end in socket.socketpair())
        os.set_blocking(self.drawn_from, False)

    def put(self, numbers: list[int]) -> None:
        if numbers:
            os.write(self._end, b"".join(number.to_bytes(_SIZE_BYTES, "big") for number in numbers))

    def take_back(self) -> list[int]:
        """Those that were not drawn, the first of them first."""
        taken = b""
        with suppress(BlockingIOError):
            taken = os.read(self.drawn_from, _ALL_BYTES)
        tickets = range(0, len(taken), _SIZE_BYTES)
        return [int.from_bytes(taken[start : start + _SIZE_BYTES], "big") for start in tickets]

    def close(self) -> None:
        os.close(self.drawn_from)
        os.close(self._end)


def draw(end: int) -> int:
    """0: there is none."""
    with suppress(BlockingIOError):
        return int.from_bytes(os.read(end, _SIZE_BYTES), "big")
    return 0
