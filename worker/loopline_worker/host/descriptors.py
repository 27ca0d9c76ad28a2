"""File descriptors: the agent raises its limit to the maximum, because it needs several for each task."""

from __future__ import annotations

import sys
from contextlib import suppress

_MOST = 65536
_before: list[tuple[int, int]] = []


def raise_limit() -> None:
    """Raise the limit to the most that this user may have, on systems that set one."""
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = limit
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            _before.append(limit)


def restore_limit(pid: int) -> None:
    """Give a process that tasks come from the usual limit: programs that use select(2) break beyond it."""
    if sys.platform == "linux" and _before:
        import resource

        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _before[0])
