"""The stake of an upload: a worker sends it with HEAD for a piece of a checkpoint, and is answered at its turn."""

from __future__ import annotations

from loopline_shared.protocol.saved_state import MAX_MANIFEST_BYTES

HEADER = "Loopline-Stake"
WAIT = 429
"""Status of an answer before its turn: the worker asks again."""
_MOST_STAKE = 1e12


def encode(size_bytes: int, stake: float) -> str:
    """Return the value of HEADER. ``stake``: seconds of work that would be lost, for each byte to be sent."""
    return f"{size_bytes} {stake:.6g}"


def decode(value: str) -> tuple[int, float]:
    """Return size and stake. Raises ValueError unless they are possible."""
    size, _, stake = value.partition(" ")
    found = int(size), float(stake)
    if not (0 <= found[0] <= MAX_MANIFEST_BYTES and -_MOST_STAKE <= found[1] <= _MOST_STAKE):
        raise ValueError("not a possible size in bytes and number of seconds a byte")
    return found
