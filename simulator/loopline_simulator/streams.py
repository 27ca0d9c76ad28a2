"""Independent streams of random numbers, one per object: adding an object leaves all other streams unchanged."""

from __future__ import annotations

import hashlib

import numpy as np

Generator = np.random.Generator


def stream(seed: int, *name: str | int) -> Generator:
    """Return the stream of the object ``name`` in the run ``seed``: the same on every machine and in every
    process.
    """
    digest = hashlib.sha256(repr((seed, *name)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
