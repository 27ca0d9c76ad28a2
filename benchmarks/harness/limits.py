"""Yardsticks that need no installation: bare loops, and the floor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness.grid import YARDSTICKS, Way, yardstick

LOOP = "spawn loop, Python"
FLOOR = "the floor"


def spawn_loops(tasks: int, slots: int, folder: Path, *, silent: bool = False) -> list[Way]:
    """Return loops in Python and, if there is a compiler, in C; ``folder`` holds the compiled program."""
    size = [str(tasks), str(slots), *(["silent"] if silent else [])]
    ways = [Way(LOOP, "-", partial(yardstick, sys.executable, "-I", "-S", YARDSTICKS / "spawn_loop.py", *size))]
    if program := compiled("spawn_loop", folder):
        ways.append(Way("spawn loop, C", "-", partial(yardstick, program, *size)))
    return ways


def floor(kind: str, tasks: int, slots: int = 2, *, silent: bool = False) -> Way:
    """The least that a durable master-worker system in Python does; ``kind`` is one of peers'."""
    options = [kind, "--tasks", str(tasks), "--slots", str(slots), *(["--silent"] if silent else [])]
    return Way(FLOOR, "yes", partial(yardstick, sys.executable, YARDSTICKS / "floor.py", *options))


def compiled(name: str, folder: Path, *flags: str) -> Path | None:
    """Return the compiled program; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    subprocess.run([compiler, "-O2", *flags, "-o", folder / name, YARDSTICKS / f"{name}.c", "-ldl"], check=True)
    return folder / name


def slower_disk(folder: Path) -> dict[str, str] | None:
    """Return an environment that makes each fsync 5 ms slower."""
    library = compiled("slow_disk", folder, "-shared", "-fPIC")
    return {"LD_PRELOAD": str(library)} if library else None
