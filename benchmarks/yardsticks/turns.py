"""Protocol of a yardstick: it reports that it is ready, and measures once for each line that it receives.

Yardsticks are separate programs, so that each is measured in processes of its own, and runs under a Python with its
libraries. Nothing of Loopline is imported here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

LINE = ("/bin/echo", "a line of stdout")
SILENT = ("/bin/true",)
KINDS = ("processes", "calls", "one-process", "one-call", "start")


def arguments() -> argparse.Namespace:
    """Return the kind to measure: ``one-...`` is one task after the other; ``start``, until the first result of a new
    system.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--silent", action="store_true", help="the command prints nothing, and nothing is kept")
    parser.add_argument("--variant", default="", help="of those that this yardstick has")
    return parser.parse_args()


def take_turns(run: Callable[[], dict[str, object]]) -> None:
    """Measure for each line until the input ends."""
    say({"ready": True})
    for _ in sys.stdin:
        say(run())


def say(figures: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def timed(work: Callable[[], object], tasks: int = 1) -> dict[str, object]:
    begin = time.perf_counter()
    work()
    return {"tasks": tasks, "seconds": time.perf_counter() - begin}


def each_timed(work: Callable[[int], object], count: int) -> dict[str, object]:
    """Time each call, one after the other."""
    moments = [time.perf_counter()]
    for number in range(count):
        work(number)
        moments.append(time.perf_counter())
    return {"each_s": [later - earlier for earlier, later in pairwise(moments)]}


def check(results: Iterable[object], expected: object, count: int) -> None:
    """A yardstick that loses results would be too fast."""
    found = list(results)
    if len(found) != count or any(result != expected for result in found):
        raise SystemExit(f"{sum(result == expected for result in found)} of {count} results are as they should be")


# What tasks do.


def increment(number: int) -> int:
    return number + 1


def run_line(_: int = 0) -> bytes:
    """Run a process and return its output. Without ``close_fds``, Python 3.11 starts it by posix_spawn."""
    return subprocess.run(LINE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, close_fds=False, check=True).stdout


def run_silent(_: int = 0) -> bytes:
    """``os.posix_spawn`` costs the least that Python has to offer."""
    _, status = os.waitpid(os.posix_spawn(SILENT[0], SILENT, os.environ), 0)
    if status:
        raise RuntimeError(f"{SILENT[0]} ended with {status}")
    return b""
