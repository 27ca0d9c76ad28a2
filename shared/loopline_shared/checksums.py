"""Checksums of files: SHA-256, which names a file, and BLAKE3, which checks a download at a fraction of the cost.

The master has verified the SHA-256 and vouches for the BLAKE3 checksum, so a download is checked by the latter:
it costs the PC less CPU time, and is several times as fast. The SHA-256 is checked where there is no BLAKE3
checksum: the package is missing at either end, or the disk keeps none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_blake3: Callable[..., Any] | None = None
with suppress(ModuleNotFoundError):  # a Rust package, which is not built for every processor
    from blake3 import blake3 as _blake3

HEADER = "Loopline-Seal"
"""Header of a file, or of a part of it: the checksum of the whole, ``blake3:`` and 64 hexadecimal digits."""
_CHECKSUM = re.compile("blake3:[0-9a-f]{64}")


def best_algorithm() -> str:
    """Return the name of the quickest hash function that this computer has."""
    return "blake3" if _blake3 else "sha256"


def digest_of(algorithm: str) -> Callable[[bytes | memoryview], bytes] | None:
    """Return the function that hashes content by this algorithm; None if this computer has none."""
    if algorithm == "sha256":
        return lambda content: hashlib.sha256(content).digest()
    if algorithm == "blake3" and _blake3 is not None:
        make = _blake3
        return lambda content: bytes(make(content).digest())
    return None


class ContentCheck:
    """Check of received content against its expected checksum, piece by piece."""

    def __init__(self, sha256: str, blake3: str = "") -> None:
        """Check by ``blake3``, the value of the header, if it is valid; otherwise by ``sha256``."""
        by_blake3 = bool(_blake3 and _CHECKSUM.fullmatch(blake3))
        self._expected = blake3.partition(":")[2] if by_blake3 else sha256
        self._digest: Any = _blake3() if _blake3 and by_blake3 else hashlib.sha256()

    def update(self, piece: bytes | memoryview) -> None:
        self._digest.update(piece)

    @property
    def is_passed(self) -> bool:
        found: str = self._digest.hexdigest()
        return found == self._expected


class ContentDigests:
    """SHA-256 and BLAKE3 of content, computed piece by piece."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._blake3 = _blake3() if _blake3 else None

    def update(self, piece: bytes) -> None:
        self._sha256.update(piece)
        if self._blake3:
            self._blake3.update(piece)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def blake3(self) -> str:
        """Value of the header; empty if the package is missing."""
        return f"blake3:{self._blake3.hexdigest()}" if self._blake3 else ""
