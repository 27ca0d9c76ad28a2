"""The command that starts a process within a cell. The agent, which tries what works here, loads no more of it."""

from __future__ import annotations

import os
import sys

_HOME = os.path.abspath(f"{__file__}/../../../..")  # noqa: PTH100 - pathlib is not light


def words_of(program: str, *arguments: str) -> list[str]:
    """Return the words that run a function of ``cell_init`` in a cell."""
    code = (
        f"import sys; sys.path.append({_HOME!r}); from loopline_worker.supervisor.walls.cell_init import {program}; "
    )
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"{code}{program}(*map({'str' if program == 'probe' else 'int'}, sys.argv[1:]))",
        *arguments,
    ]
