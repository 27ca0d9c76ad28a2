"""macOS: CoreGraphics reports the last input from any device. UNTESTED on macOS."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

from loopline_worker.presence.probe import Probe, Reading

_HARDWARE = 1  # kCGEventSourceStateHIDSystemState
_ANY_INPUT = 0xFFFFFFFF  # kCGAnyInputEventType


class MacOS(Probe):
    """Asks CoreGraphics."""

    name = "macos"

    def __init__(self) -> None:
        self._ask: Any = None

    def look(self) -> Reading:
        """Return the time since the last input of any device."""
        try:
            self._ask = self._ask or _function()
            return Reading(self.name, max(0.0, self._ask(_HARDWARE, _ANY_INPUT)), True, "CoreGraphics")
        except (OSError, AttributeError) as error:
            return Reading(self.name, detail=f"CoreGraphics cannot be asked: {error}")


def _function() -> Any:
    path = ctypes.util.find_library("CoreGraphics")
    if path is None:
        raise OSError("the library is not installed")
    function = ctypes.CDLL(path).CGEventSourceSecondsSinceLastEventType
    function.restype, function.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_uint32)
    return function
