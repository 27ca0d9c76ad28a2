"""The reporter beside a service of the system: desktops start it, so that the worker knows when they are used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loopline.service.plans import Plan, filled

_FILE = "loopline-reporter.desktop"


def with_reporter(plan: Plan, python: str, autostart: Path = Path("/etc/xdg/autostart")) -> Plan:
    """Return the plan with an entry that every desktop of this computer reads when somebody logs in."""
    command = _for_desktop([python, "-P", "-m", "loopline_worker.presence"])
    return replace(plan, beside={**plan.beside, autostart / _FILE: filled(_FILE, command=command)})


def _for_desktop(command: Sequence[str]) -> str:
    """Return the command quoted as the Desktop Entry Specification has it."""
    return " ".join(_word(word) for word in command)


def _word(word: str) -> str:
    plain = word.replace("%", "%%")
    if re.fullmatch(r"[\w%@+=:,./-]+", plain, re.ASCII):
        return plain
    quoted = re.sub(r'(["`$\\])', r"\\\1", plain)
    return '"' + quoted.replace("\\", "\\\\") + '"'  # the file's own escapes are read first
