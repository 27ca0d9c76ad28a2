"""Check of files before they are sent, because a disk may damage them.

A file is read and compared with its checksum before it is sent, unless that was done recently. A damaged one is set
aside, as by ``loopline fsck --set-aside``, and no longer exists, so that the same content can be uploaded again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from loopline_master.files.blobs import Blobs
from loopline_master.files.file_store import seal_of, unseal
from loopline_shared.checksums import ContentCheck
from loopline_shared.errors import LooplineError

DAMAGED = "damaged"
"""Folder of files that were set aside, beside the files."""
CHECKED_FOR_S = 3600.0
MOST_KNOWN = 100_000
CHECKED_BEFORE_BYTES = 2**30
"""Larger files are checked while they are sent: their receivers would wait for too long."""
_PIECE_BYTES = 2**20

log = logging.getLogger(__name__)


class WholeFiles:
    """Finds files, and checks that they are whole."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._checked: dict[str, float] = {}  # by name: when; the oldest first
        self._under_way: dict[str, asyncio.Task[bool]] = {}

    async def find(self, sha256: str) -> Path | None:
        """Return the path of a file that is to be sent; None if it is not here. Raises LooplineError for damage.

        Of a very large one the check has only begun (``while_sent``).
        """
        path = await self._blobs.path(sha256)
        if path is None or time.monotonic() - self._checked.get(sha256, -CHECKED_FOR_S) < CHECKED_FOR_S:
            return path
        checking = self._check(sha256, path)
        if path.stat().st_size <= CHECKED_BEFORE_BYTES and not await asyncio.shield(checking):
            message = f"file {sha256} was damaged on the master's disk, and is set aside"
            hint = "send the same content again; `loopline fsck` says which tasks it is of"
            raise LooplineError("damaged", message, hint, status=404)
        return path

    def while_sent(self, sha256: str, cut_off: Callable[[], object]) -> None:
        """Call ``cut_off`` if a check that is under way finds the file damaged."""
        if checking := self._under_way.get(sha256):
            checking.add_done_callback(lambda task: None if _is_whole(task) else cut_off())

    def note(self, sha256: str) -> None:
        """Note that a file is whole, as it is when it has come."""
        self._checked.pop(sha256, None)
        self._checked[sha256] = time.monotonic()
        if len(self._checked) > MOST_KNOWN:
            del self._checked[next(iter(self._checked))]

    def _check(self, sha256: str, path: Path) -> asyncio.Task[bool]:
        """Begin to check a file, or join a running check."""
        task = self._under_way.get(sha256)
        if task is None:
            task = self._under_way[sha256] = asyncio.create_task(self._look(sha256, path))
            task.add_done_callback(lambda _: self._under_way.pop(sha256))
        return task

    async def _look(self, sha256: str, path: Path) -> bool:
        """True if the file is whole. One whose seal alone is spoilt has its name as witness."""
        seal = seal_of(path)
        try:
            if not await asyncio.to_thread(_fits, path, ContentCheck(sha256, seal)):
                if not seal or not await asyncio.to_thread(_fits, path, ContentCheck(sha256)):
                    set_aside(path, sha256)
                    return False
                unseal(path)
            self.note(sha256)
        except FileNotFoundError:  # nothing needed it any more, and retention has just removed it
            return True
        except OSError as error:
            log.error("file %s is damaged, and cannot be set aside: %s", sha256, error)
            return False
        return True


def set_aside(path: Path, sha256: str) -> None:
    """Move a damaged file to the folder for those. Raises OSError if that cannot be."""
    place = path.parents[2] / DAMAGED
    place.mkdir(mode=0o700, exist_ok=True)
    path.rename(place / sha256)
    log.error("file %s is damaged, and was set aside: %s; `loopline fsck` says whose it is", sha256, place)


def _fits(path: Path, check: ContentCheck) -> bool:
    """True if the content has its checksum. A file that the disk cannot read is damaged."""
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                check.update(piece)
    except FileNotFoundError:
        raise
    except OSError as error:
        log.error("%s: %s", path, error.strerror)
        return False
    return check.is_passed


def _is_whole(task: asyncio.Task[bool]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result()
