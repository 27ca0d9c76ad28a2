"""Reads the ``console`` blocks of a page: commands and their output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """``printed``: lines that come, in this order; ``...`` in one, or between them, stands for anything."""

    command: str
    printed: Sequence[str]


def steps(page: Path) -> list[Step]:
    return [step for block in _BLOCK.findall(page.read_text("utf-8")) for step in _steps(block)]


def missing(step: Step, output: str) -> str | None:
    """The first line that should have come and has not."""
    lines = iter(output.splitlines())
    for expected in step.printed:
        pattern = _pattern(expected)
        if expected != "..." and not any(pattern.fullmatch(line.strip()) for line in lines):
            return expected
    return None


def _steps(block: str) -> Iterator[Step]:
    command, printed = "", list[str]()
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step(command, printed)
            command, printed = line[2:], []
        elif line.strip():
            printed.append(line.strip())
    yield Step(command, printed)


def _pattern(expected: str) -> re.Pattern[str]:
    parts = re.split(r"(\.\.\.|\s+)", expected)
    return re.compile("".join(".*" if p == "..." else r"\s+" if p.isspace() else re.escape(p) for p in parts))


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROGRAMS = r"loopline|pip|py|\.venv\\\S+|make|curl|docker|snakemake|python3?|sha=|ls|cat|cd|head|mkdocs|\./\w+"
_TYPED = re.compile(rf"^(?:{_PROGRAMS})(?:\s|=|\$|$)")


def typed(page: Path) -> Iterator[list[str]]:
    """Yield the command lines of each fenced block of a page: lines after ``$ ``, or, in a block without such marks
    and without a language, lines that begin with a program. A backslash at the end continues a line.
    """
    for language, block in _FENCE.findall(page.read_text("utf-8")):
        if language not in ("", "console", "sh", "bash"):
            continue
        lines = block.replace("\\\n", " ").splitlines()
        marked = [line[2:] for line in lines if line.startswith("$ ")]
        if commands := marked or [line for line in lines if _TYPED.match(line)]:
            yield commands
