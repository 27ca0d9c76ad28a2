"""Suspending this computer."""

from __future__ import annotations

from loopline_shared.errors import LooplineError
from loopline_worker.power import login_manager
from loopline_worker.presence.bus import BusError
from loopline_worker.presence.waiting.in_asyncio import run


async def suspend() -> None:
    """Suspend this computer, and return as soon as logind has accepted that. Raises LooplineError if it does not."""
    try:
        await run(login_manager.suspend())
    except (BusError, ImportError, OSError, EOFError, ValueError) as error:
        message = f"logind does not suspend this computer: {error or type(error).__name__}"
        raise LooplineError("no_suspend", message, "`sudo loopline service install --system` permits it") from None
