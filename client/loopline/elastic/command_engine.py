"""The engine `command`: a process of this computer for each allocation, such as `ssh pc7` or `docker run`.

Each process writes its own id before it becomes the command, so that it is found again after a crash.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loopline.elastic.engine import Wish
from loopline.elastic.plan import Allocation, Stage
from loopline_shared.errors import LooplineError

WORKER = "{worker}"
_SAY_WHO = 'echo $$ > "$0.new" && mv "$0.new" "$0" && exec "$@"'


class CommandEngine:
    """Runs the worker's command line behind the operator's words, or quoted in place of ``{worker}``."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._words = folder, list(words)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, name: str, command: Sequence[str], wish: Wish) -> str:
        line = command_line(self._words, command)
        try:
            with (self._folder / f"{name}.log").open("ab") as log:
                child = self._children[name] = subprocess.Popen(
                    ["/bin/sh", "-c", _SAY_WHO, str(self._file(name)), *line],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # it outlives us
                )
        except OSError as error:
            raise LooplineError("engine", f"cannot start {line[0]}: {error}") from None
        return str(child.pid)

    def stage(self, allocation: Allocation) -> Stage:
        if child := self._children.get(allocation.name):
            is_over = child.poll() is not None
        else:
            is_over = not _is_there(allocation)
        if is_over:
            self._file(allocation.name).unlink(missing_ok=True)
        return Stage.OVER if is_over else Stage.RUNNING

    def find(self, name: str) -> str | None:
        with suppress(OSError):
            return self._file(name).read_text().strip()
        return ""

    def cancel(self, allocation: Allocation) -> None:
        if self.stage(allocation) is not Stage.OVER:
            with suppress(ProcessLookupError):
                os.killpg(int(allocation.id), signal.SIGTERM)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.pid"


def command_line(words: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the words with the worker's command line in them, or behind them."""
    if any(WORKER in word for word in words):
        return [word.replace(WORKER, shlex.join(command)) for word in words]
    return [*words, *command]


def _is_there(allocation: Allocation) -> bool:
    """True if the process is there and is this allocation's: ids are given again, command lines name the worker."""
    try:
        line = Path(f"/proc/{int(allocation.id)}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
    return allocation.name.encode() in line
