"""Check whether this computer has the sandbox that tests need, once per process."""

from __future__ import annotations

from functools import cache

import pytest

from loopline_worker.launch import sandbox


@cache
def without_bubblewrap() -> str:
    """Return the reason why bubblewrap does not work here, or an empty text."""
    return sandbox.obstacle()


needs_bubblewrap = pytest.mark.skipif(
    bool(without_bubblewrap()), reason=f"no bubblewrap here: {without_bubblewrap()}"
)
