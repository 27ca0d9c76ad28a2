"""What benchmarks hold everything against that needs nothing installed: bare loops, and the floor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness import YARDSTICKS, Way, yardstick


def processes(tasks: int, slots: int, silent: bool, folder: Path) -> list[Way]:
    """``folder``: for what is compiled."""
    size = [str(tasks), str(slots), *(["silent"] if silent else [])]
    asked = ["processes", "--tasks", str(tasks), "--slots", str(slots), *(["--silent"] if silent else [])]
    ways = [
        Way("spawn loop, Python", "-", partial(yardstick, sys.executable, "-I", "-S", YARDSTICKS / "spawn_loop.py", *size)),
        Way("the floor", "yes", partial(yardstick, sys.executable, YARDSTICKS / "floor.py", *asked)),
    ]
    if program := compiled("spawn_loop", folder):
        ways.insert(0, Way("spawn loop, C", "-", partial(yardstick, program, *size)))
    return ways


def compiled(name: str, folder: Path, *flags: str) -> Path | None:
    """None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    subprocess.run([compiler, "-O2", *flags, "-o", folder / name, YARDSTICKS / f"{name}.c"], check=True)
    return folder / name
