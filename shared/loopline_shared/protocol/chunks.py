"""Formats of functions: of the file that a function travels in, and of several calls in one task.

The file has the function's pickle, and preparations that are loaded before it. Preparations are pickles, too. Loading
one makes modules importable, or runs an initializer. An interpreter loads them once, and again when it has loaded
others since; it loads the function for each call (functions/program/call_loop.py).

Arguments: for each call its length, and a pickle of its positional arguments. Ends, in order of the calls: the kind
of end, the seconds, the length, and a pickle of the return value, or of (the pickle of the exception, its traceback).
The interpreter's end of it (there, too) repeats the format, because it runs without our packages.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator

ARGUMENTS = struct.Struct("<I")
END = struct.Struct("<BfI")
RETURNED, RAISED, CRASHED = range(3)
"""Kinds of a call's end; a crash comes with a text."""


def join(calls: Iterable[bytes]) -> bytes:
    """Join the pickles of several calls' arguments as one task's."""
    pack = ARGUMENTS.pack
    return b"".join(part for call in calls for part in (pack(len(call)), call))


def ends(content: bytes) -> Iterator[tuple[int, float, bytes]]:
    """Yield each call's kind of end, its seconds and its pickle; an incomplete last one is left out."""
    at = 0
    while at + END.size <= len(content):
        how, seconds, length = END.unpack_from(content, at)
        at += END.size + length
        if at > len(content):
            return
        yield how, seconds, content[at - length : at]


def function_file(function: bytes, preparations: Iterable[bytes] = ()) -> bytes:
    """Return the file of a function: the same for the same pickles."""
    return pickle.dumps((tuple(preparations), function), 5)
