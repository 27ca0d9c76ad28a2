"""Writes the man pages of `loopline` and of each command, from their help: python docs/man_pages.py [FOLDER]"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from loopline.cli.app import COMMANDS
from loopline_shared import __version__

FOLDER = Path(__file__).parents[1] / "build" / "man"
_WIDE = "1000"  # columns, so that each option is one line of the help
_BOX = re.compile(r"^╭─ (?P<title>.*?) ─+╮$")
_ENTRY = re.compile(r"^(?P<name>.*?)(?: {2,}(?P<text>.*))?$")
_FILES = """.SH FILES
.TP
.B loopline.toml
Settings: in the working folder, else in the configuration folder of the platform. LOOPLINE_CONFIG names another one.
.SH SEE ALSO
The manual, which each master serves under /manual/.
"""


def help_of(*words: str) -> str:
    """Return what `--help` of a command prints."""
    command = [sys.executable, "-m", "loopline.cli", *words, "--help"]
    environment = {**os.environ, "COLUMNS": _WIDE, "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def page(name: str, summary: str, shown: str) -> str:
    """Return a man page, made of the help of a command."""
    summary = summary.rstrip(".").replace("`", "")
    head = f'.TH {name.upper()} 1 "" "Loopline {__version__}" "User Commands"'
    lines = [head, ".SH NAME", f"{_escaped(name)} \\- {_escaped(summary[:1].lower() + summary[1:])}"]
    return "\n".join([*lines, *_sections(shown)]) + "\n" + _FILES


def _sections(shown: str) -> Iterator[str]:
    is_described = False
    for line in (line.rstrip() for line in shown.splitlines()):
        if line.startswith("Usage: "):
            yield from (".SH SYNOPSIS", ".B " + _escaped(line.removeprefix("Usage: ")))
        elif box := _BOX.match(line):
            yield f".SH {_escaped(box['title'].upper())}"
        elif line.startswith("│"):
            entry = _ENTRY.match(line.strip("│").strip().removeprefix("*").strip())
            assert entry
            yield from (".TP", f".B {_escaped(entry['name'])}", _escaped(entry["text"] or ""))
        elif line.startswith("Exit codes: "):
            yield from (".SH EXIT STATUS", _escaped(line.removeprefix("Exit codes: ")))
        elif line.startswith("╰"):
            continue
        elif line:
            yield from ((".PP",) if is_described else (".SH DESCRIPTION",))
            yield _escaped(line.strip())
            is_described = True


def _escaped(text: str) -> str:
    """Return text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of all commands, each with its file's name."""
    shown = help_of()
    yield "loopline.1", page("loopline", "jobs on CPU time that PC owners are not using", shown)
    for command, (_, _, summary) in COMMANDS.items():
        yield f"loopline-{command}.1", page(f"loopline-{command}", summary, help_of(command))


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, "utf-8")
