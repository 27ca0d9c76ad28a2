"""Restoring: the files of a checkpoint are written into a task's folder before it starts."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from loopline_shared.model import Sha256
from loopline_shared.protocol.saved_state import PIECE_BYTES, SavedFile, SavedState
from loopline_worker.files import confined_paths

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
Part = tuple[str, int, int, int]
"""A file, where in it the part begins, where in the piece, and its size in bytes."""


class Restoring:
    """Writes one checkpoint; its methods run in a thread and raise OSError."""

    def __init__(self, state: SavedState, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self.parts: Mapping[Sha256, list[Part]] = _parts(_texts_of(state) | dict(state.files))
        """For each piece the parts of files that are in it."""
        self._texts = {name: bytearray(file.size_bytes) for name, file in _texts_of(state).items()}

    def text(self, name: str) -> bytes:
        """Return what the task had written to ``stdout``, ``stderr`` or its ``result``, once all pieces are there."""
        return bytes(self._texts.get(f"/{name}", b""))

    def make(self) -> None:
        """Make all folders and files, each of its size and still without content."""
        for path in self._state.folders:
            with confined_paths.folder(self._folder, PurePosixPath(path).parts, make=True):
                pass
        for path, file in self._state.files.items():
            handle = self._open(path, _NEW, file.mode)
            try:
                os.ftruncate(handle, file.size_bytes)
                if os.name == "posix":
                    os.fchmod(handle, file.mode | 0o600)
            finally:
                os.close(handle)

    def write(self, piece: Sha256, content: bytes) -> None:
        """Write the parts of files that are in a piece. Raises ValueError if it is too short."""
        view = memoryview(content)
        for path, at, start, size_bytes in self.parts[piece]:
            part = view[start : start + size_bytes]
            if len(part) != size_bytes:
                raise ValueError(f"piece {piece} is too short")
            if path in self._texts:
                self._texts[path][at : at + size_bytes] = part
                continue
            handle = self._open(path, _WRITE)
            try:
                os.lseek(handle, at, os.SEEK_SET)
                while part:
                    part = part[os.write(handle, part) :]
            finally:
                os.close(handle)

    def write_from(self, piece: Sha256, path: Path) -> None:
        """Do ``write`` with the content of a file."""
        self.write(piece, path.read_bytes())

    def _open(self, path: str, flags: int, mode: int = 0o600) -> int:
        *folders, name = PurePosixPath(path).parts
        with confined_paths.folder(self._folder, folders, make=True) as handle:
            place = confined_paths.at(self._folder, (*folders, name), handle)
            return os.open(place, flags, mode | 0o600, dir_fd=handle)


def _texts_of(state: SavedState) -> dict[str, SavedFile]:
    texts = {"/stdout": state.stdout, "/stderr": state.stderr, "/result": state.result}
    return {name: file for name, file in texts.items() if file}


def _parts(files: Mapping[str, SavedFile]) -> Mapping[Sha256, list[Part]]:
    parts: dict[Sha256, list[Part]] = defaultdict(list)
    for path, file in files.items():
        at, start = 0, file.offset
        for piece in file.pieces:
            size_bytes = min(PIECE_BYTES - start, file.size_bytes - at)
            parts[piece].append((path, at, start, size_bytes))
            at, start = at + size_bytes, 0
    return parts
