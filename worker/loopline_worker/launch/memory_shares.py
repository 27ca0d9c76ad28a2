"""Memory of processes, with shared memory divided among them; read in a separate thread.

The kernel lets a reader of such figures wait for the process, which may wait for its turn itself: half a minute in a
fork bomb of the lowest priority. The agent does not wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from loopline_worker.launch import open_files
from loopline_worker.supervisor import processes


class MemoryShares:
    """The last reading of one tree."""

    def __init__(self) -> None:
        self._known_bytes: int | None = None
        self._reading: threading.Thread | None = None

    def read(self, pids: Sequence[int], resident_bytes: int, limit_bytes: int) -> int:
        """Return the last reading, and start another one of these processes; before the first, an upper bound.

        ``resident_bytes``: the sum of their memory, with shared memory counted for each. What is in files counts only
        once, mapped or not.
        """
        if self._reading is None or not self._reading.is_alive():
            arguments = pids, resident_bytes, limit_bytes
            self._reading = threading.Thread(target=self._sum, args=arguments, daemon=True)
            self._reading.start()
        return min(resident_bytes, limit_bytes) if self._known_bytes is None else self._known_bytes

    def _sum(self, pids: Sequence[int], resident_bytes: int, limit_bytes: int) -> None:
        try:
            in_files = open_files.memory_bytes(pids)
            own, mapped = resident_bytes, 0
            if resident_bytes + in_files > limit_bytes:
                shares = [processes.memory_shares(pid) for pid in pids]
                if any(map(any, shares)):  # else they are another user's, and cannot be read
                    own, mapped = sum(share[0] for share in shares), sum(share[1] for share in shares)
            self._known_bytes = own + max(mapped, in_files)
        except OSError:  # no file descriptor left: as it was
            return
