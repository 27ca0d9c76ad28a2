"""The gate before which a gang's member waits, prepared, until its start is named."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress


class StartGate:
    """Closed until it is opened. Meanwhile it keeps a free port of this computer, at which its gang may meet."""

    def __init__(self, on_ready: Callable[[int], None]) -> None:
        """``on_ready`` is told the port once the member stands before the gate; 0 if none could be had."""
        self._on_ready = on_ready
        self._opened = asyncio.Event()
        self._kept: socket.socket | None = None

    async def passed(self) -> None:
        """Wait until the gate is opened."""
        if not self._opened.is_set():
            self._on_ready(self._keep_port())
            try:
                await self._opened.wait()
            finally:
                self._let_go()

    def open(self, delay_s: float = 0.0) -> None:
        """Let the member pass after so many seconds."""
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._opened.set)
        else:
            self._opened.set()

    def _keep_port(self) -> int:
        with suppress(OSError):  # no descriptor left: a gang that does not meet needs none
            self._kept = socket.socket()
            self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._kept.bind(("", 0))
            return int(self._kept.getsockname()[1])
        return 0

    def _let_go(self) -> None:
        if self._kept:
            self._kept.close()
            self._kept = None
