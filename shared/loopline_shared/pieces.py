"""Pieces of a file, and the list of their hashes: what comes from another worker is checked piece by piece.

The master makes the list of a file whose SHA-256 it has verified, and gives it to those who fetch the file. So a
piece is checked before it is passed on, and a worker that sends a wrong one is found out by that piece. The size of a
piece follows from the file's size alone, so that both ends of a transfer agree on it.

A hash is BLAKE3 where the master has that package, else SHA-256, as for whole files (checksums.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from loopline_shared import checksums

LEAST_PIECE_BYTES = 2**18
"""At 100 Mbit/s such a piece takes 21 ms: so much later does each worker of a line have the file than the one
before."""
MOST_PIECES = 4096
"""Of a file: the piece is doubled until there are no more, so that a list has 128 KiB at most."""
_DIGEST_BYTES = 32
_HEAD = re.compile(rb"loopline-pieces 1 (blake3|sha256) ([0-9]{1,16})\n")


def piece_bytes(size_bytes: int) -> int:
    """Return the size of the pieces of a file of this size; its last piece may be smaller."""
    size = LEAST_PIECE_BYTES
    while size * MOST_PIECES < size_bytes:
        size *= 2
    return size


def train_bytes(size_bytes: int, *, is_from_master: bool) -> int:
    """Return the size of a file's first pieces, which travel alone and show how fast each hop of the network is.

    It is one piece; from the master 1 MiB, because other requests delay single pieces there.
    """
    return max(piece_bytes(size_bytes), 2**20 if is_from_master else 0)


@dataclass(frozen=True, slots=True)
class PieceLayout:
    """Places of the pieces in a file of ``size_bytes`` bytes."""

    size_bytes: int

    @property
    def piece_bytes(self) -> int:
        """The size of each piece but the last."""
        return piece_bytes(self.size_bytes)

    @property
    def count(self) -> int:
        """The number of pieces."""
        return -(-self.size_bytes // self.piece_bytes)

    def start(self, number: int) -> int:
        """Return the offset of a piece, which count from 0; of the one after the last, the file's size."""
        return min(number * self.piece_bytes, self.size_bytes)

    def length(self, number: int) -> int:
        """Return the bytes of a piece."""
        return self.start(number + 1) - self.start(number)


@dataclass(frozen=True, slots=True)
class PieceList:
    """Hashes of all pieces of a file, in order; ``algorithm`` is blake3 or sha256."""

    size_bytes: int
    algorithm: str
    digests: bytes

    @property
    def layout(self) -> PieceLayout:
        """The pieces' places in the file."""
        return PieceLayout(self.size_bytes)

    @property
    def can_be_checked(self) -> bool:
        """True if this computer has the hash function."""
        return checksums.digest_of(self.algorithm) is not None

    def is_sound(self, number: int, content: bytes | memoryview) -> bool:
        """True if this is the content of that piece."""
        digest: Callable[[bytes | memoryview], bytes] | None = checksums.digest_of(self.algorithm)
        place = number * _DIGEST_BYTES
        return digest is not None and digest(content) == self.digests[place : place + _DIGEST_BYTES]

    def encode(self) -> bytes:
        """Return the list as a file: a line of text, then the hashes."""
        return f"loopline-pieces 1 {self.algorithm} {self.size_bytes}\n".encode() + self.digests

    @classmethod
    def decode(cls, content: bytes) -> PieceList:
        """Read a list. Raises ValueError unless a master may have written it."""
        head = _HEAD.match(content)
        if head is None:
            raise ValueError("this is no list of pieces")
        found = cls(int(head[2]), head[1].decode(), content[head.end() :])
        if len(found.digests) != found.layout.count * _DIGEST_BYTES:
            raise ValueError(f"{len(found.digests):,} bytes of hashes for {found.layout.count:,} pieces")
        return found

    @classmethod
    def of(cls, file: IO[bytes], size_bytes: int, check: checksums.ContentCheck) -> PieceList:
        """Make the list of a file, and have ``check`` read all of it on the way."""
        algorithm = checksums.best_algorithm()
        digest = checksums.digest_of(algorithm)
        assert digest
        layout, digests = PieceLayout(size_bytes), bytearray()
        for number in range(layout.count):
            piece = file.read(layout.length(number))
            check.update(piece)
            digests += digest(piece)
        return cls(size_bytes, algorithm, bytes(digests))
