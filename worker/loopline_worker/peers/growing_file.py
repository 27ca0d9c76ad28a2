"""A file whose first pieces are here: one thread receives it while others already serve it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import IO

from loopline_shared.pieces import PieceLayout, PieceList


class GrowingFile:
    """File at ``path``, whose first ``have`` pieces are written and checked. Any thread may ask and wait."""

    def __init__(self, path: Path, size_bytes: int, have: int = 0) -> None:
        self.path = path
        self.layout = PieceLayout(size_bytes)
        self.have = have
        self.is_abandoned = False
        self._grown = threading.Condition()

    @property
    def is_complete(self) -> bool:
        """True if every piece is here."""
        return self.have == self.layout.count

    @property
    def have_bytes(self) -> int:
        """The bytes of the pieces that are here."""
        return self.layout.start(self.have)

    def grow_to(self, have: int) -> None:
        """Announce that the first ``have`` pieces are here."""
        with self._grown:
            self.have = have
            self._grown.notify_all()

    def grow_by(self, file: IO[bytes], number: int, pieces: PieceList) -> bool:
        """Read the next piece, and say that it is here if it is the right one. False if it is not."""
        if is_sound := pieces.is_sound(number, file.read(self.layout.length(number))):
            self.grow_to(number + 1)
        return is_sound

    def abandon(self) -> None:
        """Announce that no more pieces will come, and wake all waiting threads."""
        with self._grown:
            self.is_abandoned = True
            self._grown.notify_all()

    def wait_for(self, number: int, within_s: float) -> bool:
        """Wait for a piece. True if it is here; False if time is over, or no more pieces will come."""
        with self._grown:
            self._grown.wait_for(lambda: self.have > number or self.is_abandoned, within_s)
            return self.have > number
