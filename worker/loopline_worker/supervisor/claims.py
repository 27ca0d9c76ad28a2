"""Claim tokens: a supervisor claims an order before it starts it, and the agent can retract what was not claimed.

The agent holds both ends of the socket that carries the tokens, and retracts all that is left in a single read. Each
token is read by one of the two, so that it is never in doubt who has an order, and nobody has to ask or to wait. The
tokens are in a socket because a task could open a pipe of its supervisor through /proc.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_SIZE_BYTES = 8
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
            os.write(self._end, b"".join(number.to_bytes(_SIZE_BYTES, "big") for number in numbers))

    def retract(self) -> list[int]:
        """Take back the unclaimed numbers, which cannot be claimed any more. Return them, the first first."""
        taken = b""
        with suppress(BlockingIOError):
            taken = os.read(self.supervisors_end, _ALL_BYTES)
        starts = range(0, len(taken), _SIZE_BYTES)
        return [int.from_bytes(taken[start : start + _SIZE_BYTES], "big") for start in starts]

    def close(self) -> None:
        """Close both ends."""
        os.close(self.supervisors_end)
        os.close(self._end)


def claim(end: int) -> int:
    """Claim the next order, on the supervisor's end. Return its number, or 0 if there is none."""
    with suppress(BlockingIOError):
        return int.from_bytes(os.read(end, _SIZE_BYTES), "big")
    return 0
