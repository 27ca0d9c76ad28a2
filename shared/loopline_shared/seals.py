"""A file's *seal*: the BLAKE3 of its content, as good a check as its SHA-256, at a fraction of the price.

A file is called by its SHA-256. The master, which has verified that, vouches for the seal, and who fetches the file
checks what came by it: less of an owner's processor, and several times as fast. Where there is no seal (BLAKE3 is not
installed at either end, the disk keeps none, an earlier release stored the file), the SHA-256 is checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_blake3: Callable[[], Any] | None = None
with suppress(ModuleNotFoundError):  # it is written in Rust, and not made for every processor
    from blake3 import blake3 as _blake3

HEADER = "Loopline-Seal"
"""Of an answer that is a file, or a part of it: the seal of the whole, ``blake3:`` and 64 hexadecimal digits."""
_SEAL = re.compile("blake3:[0-9a-f]{64}")


class Check:
    """Of content that must be what it is said to be; it is told of it piece by piece."""

    def __init__(self, sha256: str, seal: str = "") -> None:
        """``seal``: what the master vouches for, if anything; what is none counts as nothing."""
        is_sealed = bool(_blake3 and _SEAL.fullmatch(seal))
        self._expected = seal.partition(":")[2] if is_sealed else sha256
        self._digest: Any = _blake3() if _blake3 and is_sealed else hashlib.sha256()

    def update(self, piece: bytes | memoryview) -> None:
        self._digest.update(piece)

    @property
    def is_passed(self) -> bool:
        found: str = self._digest.hexdigest()
        return found == self._expected


class Sealing:
    """The SHA-256 of what comes in, and the seal to put on it."""

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
    def seal(self) -> str:
        """Empty: there is none."""
        return f"blake3:{self._blake3.hexdigest()}" if self._blake3 else ""
