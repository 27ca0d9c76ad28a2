"""Checks at the start of an agent: inherited limits of resources, and /proc."""

from __future__ import annotations

import os
import sys

from loopline_shared.errors import LooplineError

_FEWEST_FILES = 1024
"""Open files that an agent with several slots needs."""


def check_proc() -> None:
    """Raise LooplineError if Linux has /proc not mounted: a worker reads there what processes do."""
    if sys.platform == "linux" and not os.access("/proc/self/stat", os.R_OK):
        message = "/proc is not mounted here: a worker could not see the processes of its tasks"
        raise LooplineError("no_proc", message, "mount it (mount -t proc proc /proc), or run the worker elsewhere")


def inherited_limits() -> list[str]:
    """Return limits of this process that end or fail tasks, or the agent itself, each with how to lift it."""
    if sys.platform == "win32":
        return []
    import resource

    found = []
    for name, letter, unit, words in (
        ("RLIMIT_CPU", "t", "s", "of CPU time; then the agent or a process of a task is killed"),
        ("RLIMIT_FSIZE", "f", "bytes", "in one file, also of results and inputs"),
        ("RLIMIT_AS", "v", "bytes", "of address space in each process"),
        ("RLIMIT_DATA", "d", "bytes", "of data in each process"),
        ("RLIMIT_NOFILE", "n", "open files", f"in each process; the agent may need {_FEWEST_FILES:,}"),
    ):
        kind = getattr(resource, name, None)
        limit = resource.RLIM_INFINITY if kind is None else resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY and (name != "RLIMIT_NOFILE" or limit < _FEWEST_FILES):
            found.append(f"at most {limit:,} {unit} {words} (ulimit -{letter})")
    return found
