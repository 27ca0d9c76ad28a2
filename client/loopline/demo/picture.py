"""The picture that the demo's first job computes, as a PNG file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

_STOPS = ((0, 7, 60), (32, 107, 203), (237, 255, 255), (255, 170, 0), (120, 20, 40), (0, 7, 60))
"""Colours that levels 1 to 255 run through, and back; level 0, inside the set, is black."""


def png(rows: Sequence[bytes]) -> bytes:
    """Return a PNG picture of rows with a byte, the number of its colour, for each pixel."""
    head = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    pixels = b"".join(b"\0" + row for row in rows)
    chunks = ((b"IHDR", head), (b"PLTE", palette()), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def palette() -> bytes:
    """Return 256 colours of three bytes."""
    steps = 255 // (len(_STOPS) - 1)
    colours = [bytes(3)]
    for start, end in pairwise(_STOPS):
        colours += [_mix(start, end, step / steps) for step in range(steps)]
    return b"".join(colours)


def _mix(start: Sequence[int], end: Sequence[int], share: float) -> bytes:
    return bytes(round(a + (b - a) * share) for a, b in zip(start, end, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
