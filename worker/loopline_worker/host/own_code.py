"""The code of this worker on disk, which an upgrade of the package may change while it runs.

The zygote, and the first process of each cell, load their code later than the agent did. After an upgrade they may
expect orders of another layout, and every task would be given back. So the agent takes no more tasks once the files
that those processes load have changed, and ends when nothing is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import loopline_worker

EX_TEMPFAIL = 75
"""Exit code of a worker that is to be started again."""
_LOOK_EVERY_S = 10.0
_ROOT = Path(loopline_worker.__file__).parent


class OwnCode:
    """Compares the files of folders with an earlier state. A change stays one."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._status, self._content = self._read_status(), self._read_content()
        self._looked_at = time.monotonic()
        self._is_changed = False

    def has_changed(self, *, at_once: bool = False) -> bool:
        """True if a file has another content, is gone or is new. It looks every few seconds, or ``at_once``."""
        now = time.monotonic()
        if self._is_changed or (now - self._looked_at < _LOOK_EVERY_S and not at_once):
            return self._is_changed
        self._looked_at = now
        status = self._read_status()
        if status != self._status:
            self._status, self._is_changed = status, self._read_content() != self._content
        return self._is_changed

    def _files(self) -> Iterator[Path]:
        for folder in self._folders:
            yield from sorted(folder.rglob("*.py"))

    def _read_status(self) -> list[tuple[str, int, int]]:
        try:
            return [(str(file), (status := file.stat()).st_mtime_ns, status.st_size) for file in self._files()]
        except OSError:  # an upgrade is under way
            return []

    def _read_content(self) -> bytes:
        content = blake2b()
        try:
            for file in self._files():
                content.update(f"{file}\0".encode() + file.read_bytes())
        except OSError:
            return b""
        return content.digest()


own_code = OwnCode(_ROOT / "supervisor", _ROOT / "functions" / "program")
