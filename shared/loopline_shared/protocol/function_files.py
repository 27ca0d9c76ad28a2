"""The file that a function travels in: its pickle, and preparations that are loaded before it.

Preparations are pickles, too. Loading one makes modules importable, or runs an initializer. An interpreter loads them
once, and again when it has loaded others since; it loads the function for each call (functions/program/call_loop.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable


def pack(function: bytes, preparations: Iterable[bytes] = ()) -> bytes:
    """Return the file of a function: the same for the same pickles."""
    return pickle.dumps((tuple(preparations), function), 5)
