"""File descriptors: as many as the agent may have, for without any it could not look after its tasks."""

from __future__ import annotations

import sys
from contextlib import suppress

_MOST = 65536
_before: list[tuple[int, int]] = []


def take_all() -> None:
    """Of those that this user may have at most; nothing where the system sets none."""
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


def as_it_was(pid: int) -> None:
    """For a process that tasks come from: programs that use select(2) break beyond the usual limit."""
    if sys.platform == "linux" and _before:
        import resource

        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _before[0])
