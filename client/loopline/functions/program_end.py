"""The end of a program: it waits for open calls, as with the executors of the standard library."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class OpenCalls(Protocol):
    """An executor, as the end of the program sees it."""

    def refuse(self, why: str) -> None:
        """Take no more calls."""

    def finish(self) -> None:
        """Wait for open calls, or bring them to the master if they are to be left to it."""

    def left(self) -> str:
        """Return a sentence about the calls that are still open; empty if there are none."""


_open: WeakSet[OpenCalls] = WeakSet()


def ends_with_program(executor: OpenCalls) -> None:
    """Have the program's end wait for this executor, as long as somebody holds it or it has open calls."""
    _open.add(executor)


def _finish_all() -> None:
    """Refuse further calls, wait for what is open, and say what is left to the grid."""
    executors = list(_open)
    for executor in executors:
        executor.refuse("cannot schedule new futures after interpreter shutdown")
    try:
        for executor in executors:
            with suppress(Exception):
                executor.finish()
    except KeyboardInterrupt:  # ends the waiting: what goes on is said below
        pass
    for left in filter(None, (executor.left() for executor in executors)):
        print(left, file=sys.stderr)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)  # a child has no open calls: they are its parent's
# Runs before the exit handler of concurrent.futures, while threads can still be started; atexit is too late.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined]
