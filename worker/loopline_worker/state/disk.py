"""The disk of this computer: finds reasons to accept no more tasks, or to end one."""

from __future__ import annotations

from collections.abc import Callable

from loopline_worker.core.events import DiskObserved
from loopline_worker.state.data_directory import DataDirectory


class Disk:
    """The disk that holds the data folder."""

    def __init__(
        self, data_directory: DataDirectory, reserve_bytes: int, are_too_many_results: Callable[[], bool]
    ) -> None:
        self._data_directory = data_directory
        self._reserve_bytes = reserve_bytes
        self._are_too_many_results = are_too_many_results

    def look(self, trouble: str) -> DiskObserved:
        """Return how things are now. After a ``trouble``, files are tried again."""
        is_writable = bool(trouble) and self._data_directory.is_writable()
        free_bytes = self._data_directory.free_bytes()
        if free_bytes < self._reserve_bytes:
            obstacle = f"only {free_bytes:,} bytes are free in {self._data_directory.folder}"
            return DiskObserved(obstacle, self._shortage(), is_writable)
        obstacle = "too many results wait for the master" if self._are_too_many_results() else ""
        return DiskObserved(obstacle, is_writable=is_writable)

    def _shortage(self) -> str:
        limit = f"less than {self._reserve_bytes:,} bytes are free on its disk"
        return f"{limit} (disk_reserve_bytes of this worker)"
