"""A grid on this computer that belongs to an ordinary program, without an event loop of the program's own."""

from __future__ import annotations

import threading

from loopline.functions.loop_thread import LoopThread
from loopline.local.local_grid import new_grid

_WORKER = "here"


class OwnedGrid:
    """A master and a worker. They end with ``stop``, and when the program ends, however it does."""

    def __init__(self, slots: int | None = None) -> None:
        """Start them; return when they are connected. Raises LooplineError."""
        self._loop_thread = LoopThread("loopline-local")
        self._lock = threading.Lock()
        self._grid = new_grid(any_port=True)
        try:
            self._loop_thread.call(self._grid.start([_WORKER], slots))
        except BaseException:
            self.stop()
            raise
        self.url = self._grid.url
        self.token = self._grid.admin_token.read_text("utf-8").strip()

    def stop(self, wait: bool = True) -> None:
        """End the grid. It has ended on return, unless ``wait`` is false."""
        with self._lock:
            if self._loop_thread.is_open:
                stopping = self._loop_thread.start(self._grid.stop())
                if wait:
                    stopping.result()
                    self._loop_thread.close()
