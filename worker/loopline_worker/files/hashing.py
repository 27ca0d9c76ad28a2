"""The hash of a file, which is its name everywhere."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hash_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
