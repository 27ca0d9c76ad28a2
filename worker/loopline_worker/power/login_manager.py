"""logind: it announces sleep and shutdown, delays or prevents them while a lock is held, and suspends the computer.

A lock is an open file: closing it releases the lock. logind waits at most 5 s for a delay lock (InhibitDelayMaxSec).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NoReturn

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.power import SleepKind
from loopline_worker.presence.bus import Bus, may_be_there
from loopline_worker.presence.logind import OURS
from loopline_worker.presence.waiting.routine import Routine, pause

SERVICE = "org.freedesktop.login1"
_PATH = "/org/freedesktop/login1"
_MANAGER = "org.freedesktop.login1.Manager"
_AGAIN_S = 10.0
_EVERY_S = 3600.0
CALLED_OFF_S = 30.0
"""An announced sleep counts as called off after this awake time, even if logind is silent."""
_KINDS = {"PrepareForSleep": SleepKind.SUSPEND, "PrepareForShutdown": SleepKind.OFF}


class SleepWatch:
    """Reports that the computer is about to sleep, and that it is back. It holds the delay lock in between."""

    def __init__(self, on_sleep: Callable[[SleepKind], None], on_return: Callable[[], None]) -> None:
        """``on_sleep`` must lead to ``release``. ``on_return`` is also called if the sleep was called off."""
        self._on_sleep, self._on_return = on_sleep, on_return
        self.can_suspend = False
        """True if logind would suspend the computer for this user without a password."""
        self._lock: int | None = None
        self._announced_at: float | None = None  # on the clock of time.monotonic; None: no sleep is ahead

    def watch(self) -> Routine[None]:
        """Listen to logind. Returns if jeepney is not installed, or there is no bus."""
        if not find_spec("jeepney") or not may_be_there(of_system=True):
            return
        while True:
            with suppress(Exception), (yield from Bus.open(of_system=True, takes_files=True)) as bus:
                yield from self._keep_up(bus)  # a library may raise anything about a broken peer
            self.release()
            yield from pause(_AGAIN_S)
            self._check_announcement()

    def release(self) -> None:
        """Release the delay lock: the computer may sleep now."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _keep_up(self, bus: Bus) -> Routine[NoReturn]:
        yield from bus.subscribe(f"sender='{SERVICE}',interface='{_MANAGER}'", self._on_signal)
        while True:
            self._check_announcement()
            if self._announced_at is None:
                self.can_suspend = (yield from bus.ask(SERVICE, _PATH, _MANAGER, "CanSuspend")) == "yes"
            if self._announced_at is None and self._lock is None:
                self._lock = yield from _inhibit(bus, "sleep:shutdown", "its tasks are put in order", "delay")
            is_ahead = self._announced_at is not None
            yield from bus.signalled(time.monotonic() + (CALLED_OFF_S if is_ahead else _EVERY_S))

    def _check_announcement(self) -> None:
        if self._announced_at is not None and time.monotonic() >= self._announced_at + CALLED_OFF_S:
            self._return()

    def _on_signal(self, signal: str, body: tuple[Any, ...]) -> None:
        kind = _KINDS.get(signal)
        if kind is None or not body:
            return
        if body[0]:
            self._announced_at = time.monotonic()
            self._on_sleep(kind)
        elif self._announced_at is not None:
            self._return()

    def _return(self) -> None:
        self._announced_at = None
        self._on_return()


def inhibit(what: str, why: str) -> Routine[int]:
    """Take a lock in block mode; return the file to close. Raises BusError if the user may not, and OSError."""
    with (yield from Bus.open(of_system=True, takes_files=True)) as bus:
        return (yield from _inhibit(bus, what, why, "block"))


def suspend() -> Routine[None]:
    """Have logind suspend the computer, and return at once.

    Raises BusError if the user may not, LooplineError if another worker of this computer runs a task, and OSError.
    """
    with (yield from Bus.open(of_system=True)) as bus:
        for _, who, _, mode, _, process in (yield from bus.ask(SERVICE, _PATH, _MANAGER, "ListInhibitors")):
            if (who, mode) == (OURS, "block") and process != os.getpid():
                raise LooplineError("busy", "another worker of this computer runs a task", "it is suspended later")
        yield from bus.ask(SERVICE, _PATH, _MANAGER, "Suspend", "b", False)


def _inhibit(bus: Bus, what: str, why: str, mode: str) -> Routine[int]:
    file: int = yield from bus.ask(SERVICE, _PATH, _MANAGER, "Inhibit", "ssss", what, OURS, why, mode)
    return file
