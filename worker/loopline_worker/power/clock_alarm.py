"""The alarm of the real-time clock, which wakes this computer. It has only one, which may be its owner's."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from loopline_shared.errors import LooplineError

_CLOCK = Path("/sys/class/rtc/rtc0")


class ClockAlarm:
    """Our alarm. An alarm of another program is kept if it is earlier; otherwise ``clear`` restores it."""

    def __init__(self, clock: Path = _CLOCK) -> None:
        self._alarm, self._now = clock / "wakealarm", clock / "since_epoch"
        self._own = self._others = ""  # as the kernel shows them

    def set(self, seconds: float) -> None:
        """Have the clock wake this computer after this time at the latest.

        Raises LooplineError if it is not permitted, or there is no such clock.
        """
        try:
            others = self._found()
            if others and int(others) <= int(self._now.read_text()) + seconds:
                return
            self._others = others or self._others
            self._write(f"+{math.ceil(seconds)}")
            self._own = self._alarm.read_text().strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            message = f"cannot set an alarm of the real-time clock ({self._alarm}): {reason}"
            hint = "`sudo loopline service install --system` permits it"
            raise LooplineError("no_alarm", message, hint) from None

    def clear(self) -> None:
        """Remove our alarm. Restore the alarm that it replaced if that is in the future."""
        if self._own:
            with suppress(OSError, ValueError):
                is_ahead = self._others and int(self._others) > int(self._now.read_text())
                if not self._found():
                    self._write(self._others if is_ahead else "")
        self._own = self._others = ""

    def _found(self) -> str:
        """Return the alarm of another program, if it is in the future; empty: there is none."""
        found = self._alarm.read_text().strip()
        return found if found and found != self._own and int(found) > int(self._now.read_text()) else ""

    def _write(self, alarm: str) -> None:
        self._alarm.write_text("0")  # the kernel refuses a second alarm
        if alarm:
            self._alarm.write_text(alarm)
