"""Several calls in one task: how their arguments and ends are written one behind the other.

Arguments: for each call its length, and a pickle of its positional arguments. Ends: for each call that came to one,
in order, how it went, how many seconds it took, the length, and a pickle of what it returned, or of (the pickle of
what it raised, its traceback). The interpreter's end of it (functions/program/call_loop.py) is written out there,
because it runs with nothing of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

ARGUMENTS = struct.Struct("<I")
END = struct.Struct("<BfI")
RETURNED, RAISED, CRASHED = range(3)
"""What a call's end is; of a crash there is a text, for people."""


def join(calls: Iterable[bytes]) -> bytes:
    """Pickles of arguments as one task's."""
    pack = ARGUMENTS.pack
    return b"".join(part for call in calls for part in (pack(len(call)), call))


def ends(content: bytes) -> Iterator[tuple[int, float, bytes]]:
    """How each went, in how many seconds, and its pickle; what was cut off in the middle is left out."""
    at = 0
    while at + END.size <= len(content):
        how, seconds, length = END.unpack_from(content, at)
        at += END.size + length
        if at > len(content):
            return
        yield how, seconds, content[at - length : at]
