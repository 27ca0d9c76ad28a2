"""What a call wrote for its caller: from its scratch folder to the spool."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from loopline_shared.model import INLINE_LIMIT_BYTES, Output
from loopline_shared.paths import TEMPORARY
from loopline_worker.files import confined_paths

NAME = "value"
_CHUNK_BYTES = 2**20
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def take(folder: Path, target: Path, limit_bytes: int | None = None) -> Output | None:
    """Of the call with this scratch folder, which it may have changed as it liked: no link in it is followed.

    Short ones inside the answer, long ones in ``target``, on disk; of those above the limit the beginning. None: it
    wrote none. OSError: no room.
    """
    try:
        with confined_paths.folder(folder, (TEMPORARY,)) as handle:
            file = os.open(confined_paths.at(folder, (TEMPORARY, NAME), handle), _FLAGS, dir_fd=handle)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size <= INLINE_LIMIT_BYTES:
            return Output(status.st_size, data=stream.read(status.st_size))
        if limit_bytes is not None and status.st_size > limit_bytes:
            return Output(status.st_size, cut=True, data=stream.read(INLINE_LIMIT_BYTES))
        return _copy(stream, target, status.st_size)


def _copy(stream: BinaryIO, target: Path, size_bytes: int) -> Output:
    digest, left = hashlib.sha256(), size_bytes
    with target.open("wb") as copy:
        while left and (part := stream.read(min(_CHUNK_BYTES, left))):
            digest.update(part)
            copy.write(part)
            left -= len(part)
        copy.flush()
        os.fsync(copy.fileno())
    return Output(size_bytes - left, sha256=digest.hexdigest())
