"""How many slots are offered to the master: what the owner allows, or none while something is in the way."""

from __future__ import annotations

import logging
from collections.abc import Callable

from loopline_worker.state.data_directory import Home

log = logging.getLogger(__name__)


class Offer:
    """The one place that takes slots back. ``on_change`` is called when it does, and when they are there again."""

    def __init__(
        self,
        slots: int,
        disk_reserve_bytes: int,
        home: Home,
        are_too_many_results: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self.most = slots
        self._limit = slots
        self._disk_reserve_bytes = disk_reserve_bytes
        self._home = home
        self._are_too_many_results = are_too_many_results
        self._on_change = on_change
        self._obstacle = ""
        self._trouble = ""
        self._closed = False
        self.disk_shortage = ""
        """Why something of what runs has to go; empty where the disk has room."""

    @property
    def slots(self) -> int:
        return 0 if self._obstacle else self._limit

    @property
    def obstacle(self) -> str:
        """Why none are offered, whatever the owner allows."""
        return self._obstacle

    def limit(self, slots: int) -> None:
        """The owner allows so many; whoever says so tells the master."""
        self._limit = min(slots, self.most)

    def withdraw(self, trouble: str) -> None:
        """This computer could not do something: no slots until a review finds that it writes files again."""
        self._trouble = trouble
        if not self._closed:
            self._note(trouble)

    def close(self) -> None:
        """No slots any more."""
        self._closed = True
        self._obstacle = "stopping"
        self._on_change()

    def review(self) -> None:
        """See how things are now."""
        if self._closed:
            return
        if self._trouble and self._home.is_writable():
            self._trouble = ""
        is_short = self._home.free_bytes() < self._disk_reserve_bytes
        self.disk_shortage = self._about_disk() if is_short else ""
        self._note(self._find_obstacle())

    def _about_disk(self) -> str:
        limit = f"less than {self._disk_reserve_bytes:,} bytes are free on its disk"
        return f"{limit} (disk_reserve_bytes of this worker)"

    def _find_obstacle(self) -> str:
        if self._trouble:
            return self._trouble
        free_bytes = self._home.free_bytes()
        if free_bytes < self._disk_reserve_bytes:
            return f"only {free_bytes:,} bytes are free in {self._home.folder}"
        return "too many results wait for the master" if self._are_too_many_results() else ""

    def _note(self, obstacle: str) -> None:
        has_changed = bool(obstacle) != bool(self._obstacle)
        self._obstacle = obstacle
        if has_changed:
            log.warning("offering %s", f"no slots: {obstacle}" if obstacle else "slots again")
            self._on_change()
