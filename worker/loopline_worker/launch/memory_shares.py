"""Memory of processes with their shares of what they share, read in a thread of its own.

The kernel lets a reader of such figures wait for the process, which may wait for its turn itself: half a minute in a
fork bomb of the lowest priority. The agent does not wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from loopline_worker.supervisor import processes


class MemoryShares:
    """The last reading of one tree."""

    def __init__(self) -> None:
        self._known_bytes: int | None = None
        self._reading: threading.Thread | None = None

    def read(self, pids: Sequence[int]) -> int | None:
        """Return the sum of the last reading, and have these processes read anew. None before the first is over."""
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._sum, args=(pids,), daemon=True)
            self._reading.start()
        return self._known_bytes

    def _sum(self, pids: Sequence[int]) -> None:
        try:
            self._known_bytes = sum(processes.own_memory_bytes(pid) for pid in pids)
        except OSError:  # no file descriptor left: as it was
            return
