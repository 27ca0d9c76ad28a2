"""A worker that is faulty as a source of files, and otherwise like any: ``liar`` or ``mute``, then its options.

A liar sends wrong bytes from the ninth piece on. A mute one takes every caller, and then only says that it lives.
"""

from __future__ import annotations

import sys
from typing import IO

from loopline_worker import __main__ as worker
from loopline_worker.peers.piece_stream import OutgoingPieces
from loopline_worker.peers.serving import Serving

_TRUE_PIECES = 8


def lie() -> None:
    """Have wrong bytes sent."""
    send = OutgoingPieces.send

    def wrong(
        pieces: OutgoingPieces, number: int, file: IO[bytes], start: int, length: int, *, is_late: bool = False
    ) -> None:
        if number < _TRUE_PIECES:
            send(pieces, number, file, start, length, is_late=is_late)
        else:
            send(pieces, number, file, 0, length, is_late=is_late)  # the first piece again

    OutgoingPieces.send = wrong  # type: ignore[method-assign,assignment]


def keep_silent() -> None:
    """Have nothing sent but signs of life."""

    def nothing(serving: Serving, pieces: OutgoingPieces, number: int) -> bool:
        while not serving._file.is_abandoned:
            serving._file.wait_for(serving._file.layout.count, 0.25)
            pieces.say_alive()
        return False

    Serving._wait_for = nothing  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    {"liar": lie, "mute": keep_silent}[sys.argv.pop(1)]()
    sys.exit(worker.main())
