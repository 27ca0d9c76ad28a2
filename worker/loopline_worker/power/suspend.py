"""Suspending this computer, with an alarm of its real-time clock as a safety net."""

from __future__ import annotations

import math
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_worker.power import login_manager
from loopline_worker.presence.bus import BusError
from loopline_worker.presence.waiting.in_asyncio import run

_CLOCK = Path("/sys/class/rtc/rtc0")
_INSTALL = "`sudo loopline service install --system` permits it"


async def suspend(rtc_alarm_s: float | None = None, clock: Path = _CLOCK) -> None:
    """Suspend this computer. The real-time clock wakes it after ``rtc_alarm_s`` at the latest; None: no alarm.

    Return as soon as logind has accepted the request. Raises LooplineError if it is not permitted.
    """
    if rtc_alarm_s is not None:
        set_alarm(rtc_alarm_s, clock)
    try:
        await run(login_manager.suspend())
    except (BusError, ImportError, OSError, EOFError, ValueError) as error:
        message = f"logind does not suspend this computer: {error or type(error).__name__}"
        raise LooplineError("no_suspend", message, _INSTALL) from None


def set_alarm(seconds: float, clock: Path = _CLOCK) -> None:
    """Have the real-time clock wake this computer after this time, in place of an earlier alarm.

    Raises LooplineError if it is not permitted, or there is no such clock.
    """
    alarm = clock / "wakealarm"
    try:
        alarm.write_text("0")  # the kernel refuses a second alarm
        alarm.write_text(f"+{math.ceil(seconds)}")
    except OSError as error:
        message = f"cannot set an alarm of the real-time clock ({alarm}): {error.strerror}"
        raise LooplineError("no_alarm", message, _INSTALL) from None
