"""Commands that start other programs end on a signal, together with these programs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from loopline.cli.errors import Exit, usage
from loopline.local.caretaker import descendants


def run_until_stopped(work: Coroutine[Any, Any, int], closing_words: Callable[[], None]) -> int:
    """Run a command's work and return its exit code; if a signal ends it first, say the closing words."""
    try:
        return asyncio.run(_cancelled_by_signal(work))
    except asyncio.CancelledError:
        closing_words()
        return Exit.INTERRUPTED


async def _cancelled_by_signal(work: Coroutine[Any, Any, int]) -> int:
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


async def run_command(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    look_after: Callable[[int], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Run a command until it ends, and return its exit code; if it is cancelled, the command ends first.

    ``look_after`` is given its process id as it starts. Raises LooplineError (usage) if it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        raise usage(f"cannot run {command[0]}: {error.strerror}", "give a program of this computer") from None
    try:
        if look_after:
            await look_after(process.pid)
        return await process.wait()
    except asyncio.CancelledError:
        if process.returncode is None:
            _terminate(process.pid)
            await process.wait()
        raise


def _terminate(pid: int) -> None:
    """End a command and, on Linux, its descendants: unlike Ctrl-C, other signals have not reached them."""
    for process in (*descendants(pid), pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
