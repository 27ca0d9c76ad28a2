"""Files in a bucket. Files that the master reads itself, such as row files, are fetched and kept on disk for a while.

The time of an object's last write is the time when its file was last retained: retaining an object again copies it
onto itself, unless it is young. Another master, such as a standby elsewhere, thus sees the same.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO
from uuid import uuid4

from loopline_master.files.bucket import Bucket
from loopline_master.files.file_store import INCOMING, FolderStore, check_room, explaining_full_disk
from loopline_shared.checksums import ContentDigests
from loopline_shared.errors import LooplineError
from loopline_shared.rest.direct import DirectUpload

AT_HAND_S = 3600.0
"""Time that a file read by the master stays on its disk."""
LONGEST_YOUNG_S = 3600.0
_TRIES = 4
_MOST_KNOWN = 100_000
_KEY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}")


class BucketStore:
    """Keeps files in a bucket, as ``ab/cdef...`` below its prefix."""

    is_near = False

    def __init__(self, bucket: Bucket, at_hand: FolderStore, *, grace_s: float, reserve_bytes: int) -> None:
        """``grace_s``: age of unnamed files that are removed. ``reserve_bytes``: left free on the master's disk."""
        self.folder = at_hand.folder
        self._bucket, self._at_hand = bucket, at_hand
        self._young_s, self._reserve_bytes = min(LONGEST_YOUNG_S, grace_s / 4), reserve_bytes
        self._known: dict[str, tuple[int, float]] = {}  # by name: size, and until when it is young here
        self._lock = threading.Lock()
        """Held while an old object is retained or removed."""
        self._is_direct = bucket.check()

    def find(self, sha256: str) -> Path | None:
        """Return the path of a file at hand, fetched if need be; None if it is not kept. Raises LooplineError."""
        path = self._at_hand.find(sha256)
        if path is not None:
            self._at_hand.retain(sha256)
            return path
        found = self._bucket.size(_key(sha256))
        if found is None:
            return None
        with explaining_full_disk():
            check_room(self.folder, self._reserve_bytes + found.size_bytes)
            self._fetch(sha256)
        return self._at_hand.find(sha256)

    def retain(self, sha256: str) -> int | None:
        """Retain a file, and return its size; None if it is not kept. Raises LooplineError."""
        size_bytes, until = self._known.get(sha256, (0, 0.0))
        if time.monotonic() < until:
            return size_bytes
        found = self._bucket.size(_key(sha256))
        if found is not None and found.written_at < time.time() - self._young_s:
            with self._lock:
                found = self._bucket.size(_key(sha256))
                if found is not None:
                    self._bucket.touch(found.key)
        if found is None:
            return None
        self._know(sha256, found.size_bytes)
        return found.size_bytes

    def keep(self, file: IO[bytes], part: Path, sha256: str, seal: str) -> None:
        """Send a whole file to the bucket; it stays at hand as well. Raises LooplineError if that fails."""
        file.flush()
        size_bytes = part.stat().st_size
        with part.open("rb") as content:
            self._bucket.put(_key(sha256), content, sha256)
        self._at_hand.keep(file, part, sha256, seal)
        self._know(sha256, size_bytes)

    def remove(self, sha256: str, before: float) -> bool:
        """Remove a file unless it was retained since ``before``. Returns True if it is gone."""
        with self._lock:
            found = self._bucket.size(_key(sha256))
            if found is None or found.written_at >= before:
                return False
            self._known.pop(sha256, None)
            self._bucket.delete(found.key)
        self._at_hand.remove(sha256, time.time())
        return True

    def older(self, before: float) -> Iterator[Mapping[str, int]]:
        """Generate the sizes of files that were last retained before this time, a page of the bucket at a time."""
        for page in self._bucket.list():
            old = (found for found in page if found.written_at < before and _KEY.fullmatch(found.key))
            yield {found.key.replace("/", ""): found.size_bytes for found in old}

    def may_have(self, sha256: str) -> bool:
        """Return True: to ask for each would take longer than to remember it."""
        return True

    def direct_url(self, sha256: str) -> str | None:
        """Return an address to fetch a file from without the master."""
        return self._bucket.url_to_get(_key(sha256))

    def direct_upload(self, sha256: str, size_bytes: int) -> DirectUpload | None:
        """Return where to send a file; None if the service would take another content in its place."""
        return self._bucket.url_to_put(_key(sha256), sha256, size_bytes) if self._is_direct else None

    def tidy(self) -> None:
        """Remove files at hand that were not read lately: the bucket has them."""
        for part in self._at_hand.older(before := time.time() - AT_HAND_S):
            for sha256 in part:
                self._at_hand.remove(sha256, before)

    def _know(self, sha256: str, size_bytes: int) -> None:
        self._known[sha256] = size_bytes, time.monotonic() + self._young_s
        if len(self._known) > _MOST_KNOWN:
            self._known.pop(next(iter(self._known)), None)

    def _fetch(self, sha256: str) -> None:
        """Bring a file to hand, and check it: a connection that breaks on the way is tried again."""
        for left in reversed(range(_TRIES)):
            part = self.folder / INCOMING / f"{sha256}.{uuid4().hex}"
            try:
                with part.open("xb") as file:
                    digests = ContentDigests()
                    for piece in self._bucket.get(_key(sha256)):
                        digests.update(piece)
                        file.write(piece)
                    if digests.sha256 != sha256:
                        message = f"file {sha256} is damaged in the bucket {self._bucket.url}"
                        raise LooplineError("damaged", message, "bring it back there, or remove it", status=404)
                    self._at_hand.keep(file, part, sha256, digests.blake3)
                return
            except LooplineError as error:
                if not left or error.status != 503:
                    raise
            finally:
                part.unlink(missing_ok=True)


def _key(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:]}"
