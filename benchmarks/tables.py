"""How benchmarks are asked and answer: a short form and a full one, a table or JSON, progress beside it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Its description is the module's docstring, without the usage line."""
    asking = argparse.ArgumentParser(description=(doc or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--full", action="store_true", help="the long form; without, it takes less than a minute")
    asking.add_argument("--json", action="store_true", help="figures for programs")
    return asking


def progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def answer(found: Any, text: str, as_json: bool) -> None:
    print(json.dumps(found, indent=2) if as_json else text)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Names to the left, figures to the right."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_name = [index == 0 or head[index] == "durable" for index in range(len(head))]
    lines = (
        "  ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(row, widths, is_name))
        for row in cells
    )
    first, *others = (line.rstrip() for line in lines)
    return "\n".join([first, "-" * sum(widths, 2 * (len(widths) - 1)), *others])


def quantile(values: Iterable[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def middle(values: Iterable[float]) -> float:
    return median(values)


def count(number: float) -> str:
    return f"{number:,.0f}"


def machine() -> dict[str, str]:
    """Where figures come from, so that they can be compared with others."""
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": f"{_system()}, Linux {platform.release()}",
        "Python": f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}",
    }


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
