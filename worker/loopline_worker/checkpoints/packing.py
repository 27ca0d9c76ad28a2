"""Packing: a folder that was taken is read, and becomes pieces and a manifest.

Pieces have a constant size, so a file that is changed in places shares the others with the checkpoint before. Small
files that change at the same time share a piece, their *bundle*. An unchanged small file stays in its bundle. When
half of the bundles' bytes are useless, all small files are bundled again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pydantic import ValidationError

from loopline_shared.model import Sha256
from loopline_shared.protocol.saved_state import MAX_MANIFEST_BYTES, PIECE_BYTES, SavedFile, SavedState, encode
from loopline_worker.checkpoints.folder_snapshot import SETTLED_NS, KnownFile, NotTakenError, TakenFile, TakenFolder
from loopline_worker.checkpoints.local_store import Record, StoredTask
from loopline_worker.files import confined_paths

_WASTE_BYTES = 4 * PIECE_BYTES
"""Useless bytes of bundles that are never worth another bundling."""
_TEXTS = "/stdout", "/stderr", "/result"
"""Names of the output, which no file can have."""
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class OutputTaken:
    """The output of a task in a snapshot."""

    stdout: bytes = b""
    stderr: bytes = b""
    result: bytes | None = None  # LOOPLINE_RESULT; None: there is no such file
    written_bytes: tuple[int, int] | None = None  # sizes of stdout and stderr, if a part of them is not kept
    rank: int = 0  # of a gang's member, so that equal states of two members have manifests of their own


@dataclass(frozen=True, slots=True)
class Packed:
    """A checkpoint whose pieces are in the local store, its manifest among them."""

    manifest: Sha256
    known: Mapping[str, KnownFile]
    sizes: Mapping[Sha256, int]  # of its pieces, without the manifest

    @property
    def size_bytes(self) -> int:
        """Size of all pieces."""
        return sum(self.sizes.values())

    @property
    def is_wasteful(self) -> bool:
        """True if so little of its bundles is in use that the next checkpoint should bundle all small files again."""
        small = [file for file in self.known.values() if file.sha256]
        bundles = {sha256 for file in small for sha256 in file.saved.pieces}
        used_bytes = sum(file.saved.size_bytes for file in small)
        return sum(self.sizes[sha256] for sha256 in bundles) > 2 * used_bytes + _WASTE_BYTES


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on this computer's disk."""

    packed: Packed
    record: Record


def pack(taken: TakenFolder, output: OutputTaken, store: StoredTask, before: Packed | None) -> Packed:
    """Read a folder, and write what is new of it; in a thread. Raises NotTakenError, OSError.

    ``before``: the checkpoint that the folder's known files are from.
    """
    packing = _Packing(taken, store, before)
    try:
        for file in taken.files:
            packing.add(file)
        packing.add_output(output)
        stdout, stderr, result = map(packing.saved.get, _TEXTS)
        state = SavedState(
            {file.path: packing.saved[file.path] for file in taken.files},
            tuple(taken.folders),
            stdout,
            stderr,
            result,
            written_bytes=output.written_bytes,
            rank=output.rank,
        )
    except ValidationError as error:
        raise NotTakenError(f"a name in it is invalid: {error.errors()[0]['msg']}") from None
    finally:
        taken.close()
    manifest = encode(state)
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise NotTakenError("the list of its pieces is too long")
    return Packed(store.put(manifest), packing.known, packing.sizes)


class _Packing:
    """Packs one folder."""

    def __init__(self, taken: TakenFolder, store: StoredTask, before: Packed | None) -> None:
        self.saved: dict[str, SavedFile] = {}
        self.known: dict[str, KnownFile] = {}
        self.sizes: dict[Sha256, int] = {}
        self._taken = taken
        self._store = store
        self._before = before
        self._bundle = bytearray()
        self._bundled: list[tuple[TakenFile, int, str]] = []  # with its offset and its hash

    def add(self, file: TakenFile) -> None:
        """Pack a file. Raises NotTakenError if it was changed before it was read."""
        if file.known and self._before:
            self._keep(file, file.known)
        elif file.content is not None and file.size_bytes < PIECE_BYTES:
            self._add_small(file, file.content)
        elif file.size_bytes < PIECE_BYTES:
            self._add_small(file, b"".join(self._parts(file)))
        else:
            saved = SavedFile(file.size_bytes, file.mode, tuple(map(self._put, self._parts(file))))
            self._save(file, saved)

    def add_output(self, output: OutputTaken) -> None:
        """Pack the output, and close the last bundle."""
        for name, content in zip(_TEXTS, (output.stdout or None, output.stderr or None, output.result), strict=True):
            if content is not None:
                self.add(TakenFile(name, 0o644, (0, len(content), 0, 0), content))
        self._close_bundle()

    def _add_small(self, file: TakenFile, content: bytes) -> None:
        sha256 = hashlib.sha256(content).hexdigest()
        known = self._before.known.get(file.path) if self._before else None
        if known and known.sha256 == sha256:
            self._keep(file, known)
            return
        if len(self._bundle) + len(content) > PIECE_BYTES:
            self._close_bundle()
        self._bundled.append((file, len(self._bundle), sha256))
        self._bundle += content

    def _close_bundle(self) -> None:
        piece = (self._put(bytes(self._bundle)),) if self._bundle else ()
        for file, offset, sha256 in self._bundled:
            place = (piece, offset) if file.size_bytes else ((), 0)
            self._save(file, SavedFile(file.size_bytes, file.mode, *place), sha256)
        self._bundle.clear()
        self._bundled.clear()

    def _keep(self, file: TakenFile, known: KnownFile) -> None:
        """Use the pieces that the checkpoint before has."""
        assert self._before
        for sha256 in known.saved.pieces:
            self.sizes[sha256] = self._before.sizes[sha256]
        self._save(file, replace(known.saved, mode=file.mode), known.sha256)

    def _save(self, file: TakenFile, saved: SavedFile, sha256: str = "") -> None:
        is_settled = file.was_leased and file.stamp[3] + SETTLED_NS < self._taken.taken_at_ns
        self.saved[file.path] = saved
        self.known[file.path] = KnownFile(file.stamp, is_settled, saved, sha256)

    def _put(self, content: bytes) -> Sha256:
        sha256 = self._store.put(content)
        self.sizes[sha256] = len(content)
        return sha256

    def _parts(self, file: TakenFile) -> Iterator[bytes]:
        """Read a file by pieces. Raises NotTakenError."""
        if file.content is not None:
            yield from (file.content[at : at + PIECE_BYTES] for at in range(0, file.size_bytes, PIECE_BYTES))
            return
        handle = file.handle if file.handle >= 0 else self._open(file.path)
        try:
            left = file.size_bytes
            while left:
                part = _read(handle, min(PIECE_BYTES, left))
                left -= len(part)
                if not part or not self._taken.is_sound(file):
                    raise NotTakenError(f"{file.path[:200]} was written to before it was read")
                yield part
        finally:
            if file.handle >= 0:
                self._taken.close(file)
            else:
                os.close(handle)

    def _open(self, path: str) -> int:
        """Open a file that no process can change any more."""
        names = PurePosixPath(path).parts
        with confined_paths.folder(self._taken.base, names[:-1]) as folder:
            return os.open(confined_paths.at(self._taken.base, names, folder), _READ, dir_fd=folder)


def _read(handle: int, size_bytes: int) -> bytes:
    """Read from an open file; less only at its end."""
    content = os.read(handle, size_bytes)
    while content and len(content) < size_bytes and (part := os.read(handle, size_bytes - len(content))):
        content += part
    return content
