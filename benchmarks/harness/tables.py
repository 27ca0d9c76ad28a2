"""Input and output of benchmarks: a short form and a full one, a table or JSON, progress beside it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["answer", "count", "machine", "median", "milliseconds", "parser", "progress", "quantile", "share", "table"]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose description is the module's docstring."""
    style = argparse.RawDescriptionHelpFormatter
    asking = argparse.ArgumentParser(description=(doc or "").strip(), formatter_class=style)
    asking.add_argument("--full", action="store_true", help="the long form; the short one takes less than a minute")
    asking.add_argument("--json", action="store_true", help="figures for programs")
    return asking


def progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def answer(found: Any, text: str, as_json: bool) -> None:
    print(json.dumps(found, indent=2) if as_json else text)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Words to the left, figures to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(head, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    to_left = [not any(_is_figure(cell) for cell in column[1:]) for column in columns]
    lines = (
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, to_left, strict=True)
        ).rstrip()
        for row in [head, *cells]
    )
    first, *others = lines
    return "\n".join([first, "-" * (sum(widths) + 2 * (len(widths) - 1)), *others])


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit() or (cell[:1] in "<>~" and cell != "")


def quantile(values: Iterable[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def count(number: float) -> str:
    return f"{number:,.0f}"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}"


def share(one: float, of: float | None) -> str:
    return f"{one / of:.2f}" if of else ""


def machine() -> dict[str, str]:
    """Describe the machine, so that figures can be compared with others."""
    return {
        "processor": f"{_processor()}; {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": f"{_system()}, Linux {platform.release()}",
        "Python": f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
