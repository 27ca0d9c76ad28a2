"""Framing of the messages between the agent and its supervisors.

Messages are marshalled, which costs least: both ends run the same Python.
"""

from __future__ import annotations

import marshal

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from typing import Any

_SIZE_BYTES = 4


def pack(message: Any) -> bytes:
    """Return the message as bytes, its size first."""
    body = marshal.dumps(message)
    return len(body).to_bytes(_SIZE_BYTES, "big") + body


class Unpacker:
    """Turns received bytes back into messages."""

    def __init__(self) -> None:
        self._received = b""

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
