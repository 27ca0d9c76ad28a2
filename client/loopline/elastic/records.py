"""Records of allocations on disk: each is written before it is submitted, so that none is ever forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from loopline.elastic.plan import Allocation, Stage
from loopline_shared.disk.durable_files import replace_file
from loopline_shared.errors import LooplineError

_KEPT = 100
"""Allocations that are over are kept for as many: failures are looked for in them."""


class Records:
    """Allocations of one folder. One process has it at a time. Raises LooplineError if another one does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file, self._lock = folder / "allocations.json", (folder / "lock").open("w")
        _lock(self._lock.fileno(), folder)
        self.allocations = {one.name: one for one in self._read()}

    def put(self, *changed: Allocation) -> None:
        """Write changed or new ones down; they are on disk when this returns."""
        self.allocations |= {one.name: one for one in changed}
        over = sorted((one for one in self.allocations.values() if one.is_over), key=lambda one: one.over_at)
        for one in over[:-_KEPT]:
            del self.allocations[one.name]
        self._write(self.allocations.values())

    def close(self) -> None:
        """Let another process have the folder."""
        self._lock.close()

    def _read(self) -> list[Allocation]:
        if not self._file.exists():
            return []
        try:
            rows = json.loads(self._file.read_text("utf-8"))
            return [Allocation(**row | {"stage": Stage(row["stage"])}) for row in rows]
        except (ValueError, TypeError, KeyError) as error:
            hint = "look with the engine's own commands what is there, and move the file away"
            raise LooplineError("records", f"cannot read {self._file}: {error}", hint) from None

    def _write(self, allocations: Iterable[Allocation]) -> None:
        replace_file(self._file, json.dumps([asdict(one) for one in allocations], indent=1).encode())


def _lock(descriptor: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        message = f"another `loopline elastic` has {folder}"
        raise LooplineError("locked", message, "end that one, or give this one a --state of its own") from None
