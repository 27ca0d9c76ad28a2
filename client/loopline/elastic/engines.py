"""The engines by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.elastic.engine import Engine


def open_engine(kind: str, folder: Path, words: Sequence[str]) -> Engine:
    """Return the engine of this name; ``words``: the command that starts a worker, of the engine `command`."""
    if kind == "command":
        from loopline.elastic.command_engine import CommandEngine

        return CommandEngine(folder / "processes", words)
    from loopline.elastic.psij_engine import PsijEngine

    return PsijEngine(kind, folder / "psij")
