"""What the agent and its guards say to each other: marshalled, for both run the same Python and it costs least."""

from __future__ import annotations

import marshal

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from typing import Any

_SIZE_BYTES = 4


def pack(message: Any) -> bytes:
    body = marshal.dumps(message)
    return len(body).to_bytes(_SIZE_BYTES, "big") + body


class Unpacker:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._heard = b""

    def feed(self, part: bytes) -> None:
        self._heard += part

    def next(self) -> Any:
        """None: it is not there yet, as a whole."""
        size = int.from_bytes(self._heard[:_SIZE_BYTES], "big") + _SIZE_BYTES
        if not self._heard or len(self._heard) < size:
            return None
        message = marshal.loads(self._heard[_SIZE_BYTES:size])  # noqa: S302 - from our own processes alone
        self._heard = self._heard[size:]
        return message
