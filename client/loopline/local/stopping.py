"""Programs that run a local grid end on a signal, and what they started ends with them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def until_stopped(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run the work; a first signal cancels it, and later ones are ignored while it cleans up."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    signals = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))]

    def stop() -> None:
        for number in signals:
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    with suppress(NotImplementedError):  # on Windows, where asyncio.run itself cancels on Ctrl-C
        for number in signals:
            loop.add_signal_handler(number, stop)
    return await task
