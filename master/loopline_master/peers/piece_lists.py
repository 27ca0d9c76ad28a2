"""Lists of the pieces of files, each made when a worker first asks for it, and kept for the others that will."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from pathlib import Path

from loopline_master.files.blobs import Blobs
from loopline_master.files.file_store import seal_of
from loopline_shared.checksums import ContentCheck
from loopline_shared.errors import LooplineError
from loopline_shared.pieces import PieceList

log = logging.getLogger(__name__)

_KEPT = 64
"""Each has at most 128 KiB."""


class PieceLists:
    """Makes lists of pieces. A file is checked as a whole on the way: a list of a spoilt file would vouch for it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._lists: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()

    async def get(self, sha256: str) -> bytes | None:
        """Return the encoded list of a file; None if it is not here. Raises LooplineError if it is spoilt."""
        path = await self._blobs.path(sha256)
        if path is None:
            return None
        making = self._lists.get(sha256)
        if making is None:
            making = self._lists[sha256] = asyncio.create_task(asyncio.to_thread(self._make, sha256, path))
        self._lists.move_to_end(sha256)
        try:
            return await asyncio.shield(making)
        except (OSError, LooplineError):
            self._lists.pop(sha256, None)
            raise
        finally:
            while len(self._lists) > _KEPT:
                self._lists.popitem(last=False)

    def _make(self, sha256: str, path: Path) -> bytes:
        check = ContentCheck(sha256, seal_of(path))
        with path.open("rb") as file:
            pieces = PieceList.of(file, path.stat().st_size, check)
        if not check.is_passed:
            log.error("the file %s has been changed on the master's disk", path)
            raise LooplineError("spoilt_file", f"the master's copy of {sha256} is spoilt", "upload it again", 500)
        return pieces.encode()
