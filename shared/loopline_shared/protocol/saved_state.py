"""The manifest of a checkpoint: the files that a task saved, as pieces in the master's store.

Pieces have a constant size, so that checkpoints of a file that grows, or changes in place, share most of them. It is
JSON in one canonical form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from loopline_shared.model import Count, Sha256
from loopline_shared.paths import RelativePath

PIECE_BYTES = 2**20
"""Size of a piece; the last piece of a file is shorter. Files that are smaller than a piece share pieces."""
MAX_FILES = 10_000
MAX_MANIFEST_BYTES = 128 * 2**20
_MAX_PIECES = 2**20


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a checkpoint. It begins at ``offset`` of its first piece."""

    size_bytes: Count
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o644
    pieces: Annotated[tuple[Sha256, ...], Field(max_length=_MAX_PIECES)] = ()
    offset: Annotated[int, Field(ge=0, lt=PIECE_BYTES)] = 0

    @model_validator(mode="after")
    def _has_pieces(self) -> Self:
        expected = -(-(self.offset + self.size_bytes) // PIECE_BYTES) if self.size_bytes else 0
        if len(self.pieces) != expected:
            raise ValueError(f"{self.size_bytes:,} bytes come in {expected} pieces, not in {len(self.pieces)}")
        return self


@dataclass(frozen=True, slots=True)
class SavedState:
    """Checkpoint folder and output of a task."""

    files: Annotated[Mapping[RelativePath, SavedFile], Field(max_length=MAX_FILES)]
    folders: Annotated[tuple[RelativePath, ...], Field(max_length=MAX_FILES)] = ()  # without files
    stdout: SavedFile | None = None
    stderr: SavedFile | None = None
    result: SavedFile | None = None  # LOOPLINE_RESULT
    written_bytes: tuple[Count, Count] | None = None  # sizes of stdout and stderr, if a part of them is not kept
    rank: Count = 0  # of a gang's member: equal states of two members are two checkpoints

    def pieces(self) -> set[Sha256]:
        """Return the names of all pieces."""
        written = (one for one in (self.stdout, self.stderr, self.result) if one)
        return {piece for file in (*self.files.values(), *written) for piece in file.pieces}


_adapter = TypeAdapter(SavedState)


def encode(state: SavedState) -> bytes:
    """Return the manifest."""
    return _adapter.dump_json(state)


def decode(content: bytes) -> SavedState:
    """Read a manifest. Raises ValueError unless it is one."""
    return _adapter.validate_json(content)
