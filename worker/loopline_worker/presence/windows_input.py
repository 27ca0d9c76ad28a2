"""Windows: the last input of this session and of all others, remote ones included. UNTESTED on Windows.

GetLastInputInfo sees only the session that the agent runs in, which is why it is started when its user logs on. The
remote desktop services report the last inputs of the other sessions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

from loopline_worker.presence.probe import Probe, Reading

_TICKS = 2**32
_TICK_S = 0.001
_FILETIME_S = 1e-7
_ACTIVE = 0  # WTSActive, of WTS_CONNECTSTATE_CLASS
_SESSION_INFO = 24  # WTSSessionInfo, of WTS_INFO_CLASS
_UINT, _ULONG, _WORDS = ctypes.c_uint, ctypes.c_ulong, ctypes.c_wchar


class LastInput(ctypes.Structure):
    """LASTINPUTINFO"""

    _fields_ = (("size", _UINT), ("tick", _ULONG))


class SessionEntry(ctypes.Structure):
    """WTS_SESSION_INFOW"""

    _fields_ = (("id", _ULONG), ("station", ctypes.c_wchar_p), ("state", ctypes.c_int))


class SessionInfo(ctypes.Structure):
    """WTSINFOW"""

    _fields_ = (
        ("state", ctypes.c_int), ("id", _ULONG), ("counts", _ULONG * 6),
        ("station", _WORDS * 32), ("domain", _WORDS * 17), ("user", _WORDS * 21),
        ("connected", ctypes.c_int64), ("disconnected", ctypes.c_int64), ("last_input", ctypes.c_int64),
        ("logged_on", ctypes.c_int64), ("now", ctypes.c_int64),
    )  # fmt: skip


def tick_idle_s(now: int, last: int) -> float:
    """Return the time between two tick counts, which start again every 49.7 days."""
    return (now - last) % _TICKS * _TICK_S


def session_idle_s(info: SessionInfo) -> float:
    """Return a session's idle time; an active one without a time of its last input is in use."""
    return max(0.0, (info.now - info.last_input) * _FILETIME_S) if info.last_input else 0.0


class Windows(Probe):
    """Asks Windows for the last input of every session."""

    name = "windows"

    def look(self) -> Reading:
        """Return the least idle session's time."""
        if sys.platform == "win32":
            try:
                others = list(_other_sessions())
                return Reading(self.name, min([_own_idle_s(), *others]), True, f"{1 + len(others)} sessions")
            except OSError as error:
                return Reading(self.name, detail=str(error))
        return Reading(self.name, detail="not on Windows")


if sys.platform == "win32":

    def _own_idle_s() -> float:
        last = LastInput(ctypes.sizeof(LastInput))
        if not ctypes.windll.user32.GetLastInputInfo(ctypes.byref(last)):
            raise ctypes.WinError()
        return tick_idle_s(ctypes.windll.kernel32.GetTickCount() % _TICKS, last.tick)

    def _other_sessions() -> Iterator[float]:
        services, own = ctypes.windll.wtsapi32, _ULONG()
        ctypes.windll.kernel32.ProcessIdToSessionId(ctypes.windll.kernel32.GetCurrentProcessId(), ctypes.byref(own))
        entries, count = ctypes.POINTER(SessionEntry)(), _ULONG()
        if not services.WTSEnumerateSessionsW(None, 0, 1, ctypes.byref(entries), ctypes.byref(count)):
            raise ctypes.WinError()
        try:
            active = [entries[place].id for place in range(count.value) if entries[place].state == _ACTIVE]
        finally:
            services.WTSFreeMemory(entries)
        for session in active:
            if session != own.value:
                yield _idle_of(session)

    def _idle_of(session: int) -> float:
        services, info, size = ctypes.windll.wtsapi32, ctypes.POINTER(SessionInfo)(), _ULONG()
        if not services.WTSQuerySessionInformationW(
            None, session, _SESSION_INFO, ctypes.byref(info), ctypes.byref(size)
        ):
            return 0.0
        try:
            return session_idle_s(info.contents)
        finally:
            services.WTSFreeMemory(info)
