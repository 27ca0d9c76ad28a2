"""The subreaper, which inherits orphans: prctl(2) on Linux, nothing elsewhere.

Without it (macOS) an orphan goes to the system's first process. What stays in its task's process group is still found
and killed; a daemon that left the group is not.
"""

from __future__ import annotations

import ctypes
import sys

_PR_SET_CHILD_SUBREAPER = 36
libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Make every descendant that loses its parent a child of this process, from now on."""
    if libc:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
