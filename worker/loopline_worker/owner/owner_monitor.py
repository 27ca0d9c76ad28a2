"""The owner monitor: reads the idle detector and the load of this computer, and posts what it sees.

The machine decides what follows (core/owner.py); the clock and the probes are here, and the record of how soon tasks
were frozen. While tasks run, the idle detector is read ten times a second, and at once if a probe is notified of an
input.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import psutil

from loopline_shared.model import Load, Yielded
from loopline_worker.core.events import Event, OwnerObserved
from loopline_worker.core.instructions import RecordPreemption
from loopline_worker.core.machine import Machine
from loopline_worker.core.owner_policy import Decision, OwnerPreferences, Policy, Signs
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.host.computer import Computer, is_contained
from loopline_worker.host.contention import Contention
from loopline_worker.host.load import Battery, Meter, hottest
from loopline_worker.link.link_quality import LinkQuality
from loopline_worker.owner.blockers import LOOK_AT_PROGRAMS_EVERY_S, BlockingPrograms, Pause, switched_off
from loopline_worker.presence.idle_detector import IdleDetector, Idleness, InputClock
from loopline_worker.presence.session_reports import SessionReports
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.settings import WorkerSettings
from loopline_worker.task_group import TaskGroup
from loopline_worker.timings import CONTENTION_EVERY_S, LOOK_AGAIN_S, LOOK_EVERY_S, LOOK_WHILE_FROZEN_S

log = logging.getLogger(__name__)

_LATENCIES_KEPT = 1000
_SHOWN = 20
_NEVER = Yielded()
_LOOKS_AT_CONTENTION = 4
"""Checks in a row that must find contention while the owner is away, because shorter contention does no harm."""


class OwnerMonitor:
    """Holds the probes and their last reading. It only reads the machine."""

    def __init__(
        self,
        settings: WorkerSettings,
        computer: Computer,
        machine: Machine,
        post: Callable[[Event], None],
        *,
        preferences: OwnerPreferences,
        meter: Meter,
        pause: Pause,
        free_bytes: Callable[[], int],
        allowance: NetworkAllowance,
    ) -> None:
        self.preferences = preferences
        self.history = PreemptionHistory()
        self.pause = pause
        self._hours = settings.hours
        self._computer = computer
        self._meter = meter
        self._free_bytes = free_bytes
        self._allowance = allowance
        self._sampled: dict[str, Any] = {}  # the slowly changing part of a Load
        self._machine = machine
        self._post = post
        self._battery = Battery()
        blockers = () if settings.dedicated else settings.pause_while_running
        self._programs = BlockingPrograms(blockers) if blockers else None
        self._may_keep_awake = settings.keep_awake
        self._heeds_hours = not settings.dedicated
        self._off_file = settings.off_file
        self._idle_detector = _open_idle_detector() if self.preferences.needs_presence else None
        self.idleness = Idleness(None, "no reading yet") if self._idle_detector else Idleness(math.inf, "")
        self._stirred = asyncio.Event()
        self._is_notified = False  # by a probe, of an input since the last look
        self._input = InputClock()
        self._signs = Signs(computer.cores, computer.cores)
        watches = self.preferences.yields_cores and not is_contained()  # a container has no owner's programs in it
        self._contention = Contention(computer.cores) if watches else None
        self._runs = asyncio.Event()  # something does
        self._rests = False  # there is no next look before something happens: a task that begins does

    @property
    def decision(self) -> Decision:
        """Return what the owner policy allows now."""
        return self._machine.decision

    @property
    def is_in_use(self) -> bool:
        """True if the computer is in use or that is unknown; False if the owner policy ignores presence."""
        return self._machine.is_in_use

    def start(self, task_group: TaskGroup) -> None:
        """Look now, and again and again from now on."""
        if self._programs:
            self._signs = replace(self._signs, program=self._programs.found())
        self.sample()
        self.look()
        for listening in self._idle_detector.listen(self._on_input) if self._idle_detector else ():
            task_group.start(run(listening))
        task_group.start(self._attend())
        if self._contention:
            task_group.start(self._yield_processor(self._contention))
        if self._programs:
            task_group.start(self._watch_programs(self._programs))
        if self._allowance.asks_for_metered:
            from loopline_worker.owner import metered

            task_group.start(run(metered.watch(self._learn_metered)))

    def use_reports(self, reports: SessionReports) -> None:
        """Use the readings of this computer's session reporters."""
        if self._idle_detector:
            self._idle_detector.use_reports(reports)

    def knows(self, uid: int) -> bool:
        """True if this user is logged in at this computer."""
        return self._idle_detector is not None and self._idle_detector.knows(uid)

    @property
    def keeps_awake(self) -> bool:
        """True if tasks need the computer awake: one runs, and the owner is away."""
        return self._may_keep_awake and self.watches and not self.is_in_use

    @property
    def sleep_locks(self) -> tuple[str, ...]:
        """Locks of logind that are needed so that tasks continue. A login screen ignores the lock *idle*."""
        if not self.keeps_awake:
            return ()
        return ("idle", "sleep") if self._idle_detector and self._idle_detector.is_at_greeter else ("idle",)

    @property
    def watches(self) -> bool:
        """True while tasks run, so that an input has to be seen at once."""
        return bool(self._machine.attempts.running)

    def close(self) -> None:
        """Let go of the probes."""
        if self._idle_detector:
            self._idle_detector.close()

    def load(self, link_quality: LinkQuality) -> Load:
        """Return the load of this computer, with its owner and its link to the master."""
        known_s, decision = self.idleness.idle_s, self._machine.decision
        return Load(
            **self._sampled,
            slots=self._machine.slots_offered,
            in_use=self._machine.is_in_use,
            idle_s=None if self._idle_detector is None or known_s is None else round(known_s, 1),
            withheld=decision.why,
            delay_s=link_quality.delay_s,
            throughput_bytes_s=link_quality.throughput_bytes_s,
        )

    def nudge(self) -> None:
        """Look now: the owner has changed something."""
        self._stirred.set()

    def _on_input(self) -> None:
        self._is_notified = True
        self._stirred.set()

    def attend(self) -> None:
        """Look now, unless there is a next look anyhow: a task has begun."""
        if self._rests:
            self._stirred.set()

    def record(self, done: RecordPreemption) -> None:
        """Keep for the owner and the master how soon tasks were frozen."""
        self.history.note(Preemption(time.time(), done.why, done.attempts, done.took_s, done.after_input))
        self._sampled["yielded"] = self.history.yielded()
        origin = f"the input that {self.idleness.by} saw" if done.after_input else "it was due"
        because = f": {done.why}" if done.why else ""
        log.info("%d frozen, %.3f s after %s%s", done.attempts, done.took_s, origin, because)

    def sample(self) -> None:
        """Sample everything that changes slowly; a look follows soon."""
        self._stirred.set()
        now = time.localtime()
        self._signs = Signs(
            self._computer.cores,
            self._meter.spare_cpu,
            taken_cores=self._computer.taken_cores,
            memory_available_bytes=self._meter.memory_available_bytes(),
            celsius=hottest() if self.preferences.max_temperature_c is not None else None,
            on_battery=self._battery.is_in_use(),
            is_time=not self._heeds_hours or self._hours.include(now.tm_wday, now.tm_hour * 60 + now.tm_min),
            program=self._signs.program,
            switched_off=switched_off(self._off_file),
            network=self._allowance.look(time.strftime("%Y-%m-%d", now)),
        )
        self._sampled = self._sample_load()

    def _learn_metered(self, is_metered: bool) -> None:
        if is_metered != self._allowance.is_metered:
            self._allowance.is_metered = is_metered
            self.sample()

    def _sample_load(self) -> dict[str, Any]:
        """Return what changes slowly of a load."""
        pressure = self._meter.pressure
        return {
            "spare_cpu": round(self._meter.spare_cpu, 3),
            "memory_available_bytes": self._meter.memory_available_bytes(),
            "disk_free_bytes": self._free_bytes(),
            "cpu_pressure": pressure.cpu,
            "memory_pressure": pressure.memory,
            "io_pressure": pressure.io,
            "on_battery": self._signs.on_battery,
            "yielded": self.history.yielded(),
        }

    def look(self) -> None:
        """Read the idle detector, and post the reading with the last sample."""
        input_at = -math.inf
        if self._idle_detector:
            now, self.idleness = time.monotonic(), self._idle_detector.look()
            idle_s, is_fresh = self.idleness.certain_idle_s, self.idleness.is_fresh
            input_at = self._input.looked(idle_s, now, is_fresh=is_fresh, is_notified=self._is_notified)
            self._is_notified = False
        paused = self.pause.words(time.time())
        wanted = self._contention.wanted(time.monotonic()) if self._contention else 0.0
        signs = replace(self._signs, idle_s=self.idleness.idle_s, paused=paused, wanted_cores=wanted)
        self._post(OwnerObserved(signs, input_at))

    async def _attend(self) -> NoReturn:
        while True:
            self._stirred.clear()
            self.look()
            await asyncio.sleep(0)  # the agent takes its turn
            if self._machine.attempts.running:
                self._runs.set()
            pause_s = self._until_next_look_s()
            self._rests = pause_s is None and self._idle_detector is not None
            with suppress(TimeoutError):  # not wait_for: in Python 3.11 it may lose a cancellation
                async with asyncio.timeout(pause_s):
                    await self._stirred.wait()

    async def _watch_programs(self, programs: BlockingPrograms) -> NoReturn:
        while True:
            await asyncio.sleep(LOOK_AT_PROGRAMS_EVERY_S)
            try:
                program = programs.found()
            except (OSError, psutil.Error):  # no file descriptor left: the last known tasks count as running
                continue
            if program != self._signs.program:
                self._signs = replace(self._signs, program=program)
                self.look()

    async def _yield_processor(self, contention: Contention) -> NoReturn:
        """While tasks run, look at once wherever others want the processor too."""
        while True:
            if not self._machine.attempts.running:
                contention.forget()
                self._runs.clear()
                await self._runs.wait()
            is_near = self.is_in_use or self.preferences.policy is Policy.SPARE
            if contention.look(time.monotonic(), 1 if is_near else _LOOKS_AT_CONTENTION):
                self.look()
            await asyncio.sleep(CONTENTION_EVERY_S)

    def _until_next_look_s(self) -> float | None:
        """Return None if there is no next look before something happens, or before the next sample."""
        if self._machine.freezing:
            return LOOK_AGAIN_S
        if self._idle_detector is None:
            return None
        if self._machine.attempts.running:
            return LOOK_EVERY_S
        return LOOK_WHILE_FROZEN_S if self._machine.attempts.frozen else None


def _open_idle_detector() -> IdleDetector:
    from loopline_worker.presence.idle_detector import open_idle_detector

    return open_idle_detector()


@dataclass(frozen=True, slots=True)
class Preemption:
    """Preemption of tasks: they were frozen for the owner at one time."""

    at: float  # seconds since 1970
    why: str
    attempts: int
    took_s: float  # since the input, or since the agent knew
    after_input: bool


class PreemptionHistory:
    """Preemptions since the agent started. Only freezes after an input count in the figures."""

    def __init__(self) -> None:
        self.recent: deque[Preemption] = deque(maxlen=_SHOWN)  # the latest last
        self._order: deque[float] = deque()
        self._sorted: list[float] = []
        self._count = 0

    def note(self, entry: Preemption) -> None:
        """Add a preemption."""
        self.recent.append(entry)
        if not entry.after_input:
            return
        self._count += 1
        self._order.append(entry.took_s)
        insort(self._sorted, entry.took_s)
        if len(self._order) > _LATENCIES_KEPT:
            self._sorted.remove(self._order.popleft())

    def yielded(self) -> Yielded:
        """Return the number of preemptions and how fast they were."""
        if not self._sorted:
            return _NEVER
        return Yielded(self._count, *(round(quantile(self._sorted, part), 4) for part in (0.5, 0.99)))


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that at least this part of the ordered values do not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
