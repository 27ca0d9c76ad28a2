"""Yielding to the owner: looks at the desk and the load, asks the pure parts what follows, and has it done.

``consent`` decides how much may run, ``ladder`` which attempts that means; here are the clock and the probes. While
tasks run, the desk is looked at ten times a second, and at once where a probe is told of an input.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from loopline_shared.model import AttemptId, Load
from loopline_worker.attempts.runner import Runner
from loopline_worker.core.owner_policy import Consent, Signs, decide, is_there
from loopline_worker.core.preemption import Ladder, Steps
from loopline_worker.host.battery import Battery
from loopline_worker.host.computer import Computer
from loopline_worker.host.load import Meter
from loopline_worker.link.link_quality import Network
from loopline_worker.owner.advertised_slots import Offer
from loopline_worker.owner.pause import Pause
from loopline_worker.owner.preferences import terms_of
from loopline_worker.presence.blocking_programs import Programs
from loopline_worker.presence.idle_detector import Desk, InputClock, Sight
from loopline_worker.settings import WorkerSettings
from loopline_worker.state.preemption_history import Journal, Yield
from loopline_worker.task_group import Crew

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
"""While tasks run: the largest part of the time from an input until they stand still."""
_LOOK_WHILE_FROZEN_S = 0.5
_LOOK_AGAIN_S = 0.02  # until what was stopped really stands still


@dataclass(slots=True)
class _Stopping:
    """Attempts that were told to stand still, until they do."""

    attempts: dict[AttemptId, None]
    since: float  # the input, or else when it was decided
    why: str
    after_input: bool
    count: int


class Yielding:
    """``on_change`` is called when the master should hear of it at once."""

    def __init__(
        self,
        settings: WorkerSettings,
        computer: Computer,
        meter: Meter,
        runner: Runner,
        offer: Offer,
        pause: Pause,
        on_change: Callable[[], None],
    ) -> None:
        self.terms = terms_of(settings, computer.memory_bytes())
        self.journal = Journal()
        self.sight = Sight(None, "nobody has looked yet")
        self.pause = pause
        self._hours = settings.hours
        self._computer = computer
        self._meter = meter
        self._runner = runner
        self._offer = offer
        self._on_change = on_change
        self._battery = Battery()
        self._programs = Programs(() if settings.dedicated else settings.not_while)
        self._heeds_hours = not settings.dedicated
        self._desk = _open_desk() if self.terms.asks_who_is_there else None
        self._stirred = self._desk.stirred if self._desk else asyncio.Event()
        self._input = InputClock()
        self._ladder = Ladder(settings.grace_s)
        self._signs = Signs(computer.cores, computer.cores)
        self._was_there = False
        self._rests = False  # there is no next look before something happens: a task that begins does
        self._stopping: _Stopping | None = None
        self._leaving: AttemptId | None = None  # for want of disk space
        self.consent = Consent(offer.most)

    # What the agent tells.

    def start(self, crew: Crew) -> None:
        self.sample()
        self.look()
        if self._desk:
            self._desk.listen(crew)
        crew.start(self._attend())

    def close(self) -> None:
        if self._desk:
            self._desk.close()

    def refusal(self, slots: int) -> str:
        """Why an attempt that has just been assigned cannot run here; empty where it can."""
        if self._ladder.has_room(slots, self.consent.slots) and not self.consent.short_of_memory:
            return ""
        return self.consent.why

    @property
    def hindrance(self) -> str:
        """Why what waits here would wait for long, or for who knows how long; empty where it would not."""
        if self._ladder.frozen or self.consent.short_of_memory or not self.consent.slots:
            return self.consent.why or "what runs here stands still"
        return ""

    def took(self, attempt: AttemptId, slots: int) -> None:
        self._ladder.took(attempt, slots)
        if self._rests:
            self._stirred.set()

    def followed(self, before: AttemptId, after: AttemptId, slots: int) -> None:
        """One has begun in the place of another, by itself: no slot was free in between."""
        if not self._ladder.has(before):  # it was given back just before it ended
            self.nudge()
        self._ladder.followed(before, after, slots)
        if self._stopping and before in self._stopping.attempts:
            del self._stopping.attempts[before]
            self._stopping.attempts[after] = None

    def ended(self, attempt: AttemptId) -> None:
        self._ladder.ended(attempt)
        if self._stopping:
            self._stopping.attempts.pop(attempt, None)
        self._limit_offer()  # what it leaves is not lent again while memory is short

    def load(self, disk_free_bytes: int, network: Network) -> Load:
        """What there is to say of this computer, of its owner, and of the way to the master."""
        known_s, pressure = self.sight.idle_s, self._meter.pressure
        return Load(
            self._offer.slots,
            round(self._meter.spare_cpu, 3),
            self._meter.memory_available_bytes(),
            disk_free_bytes,
            cpu_pressure=pressure.cpu,
            memory_pressure=pressure.memory,
            io_pressure=pressure.io,
            on_battery=self._signs.on_battery,
            in_use=self._was_there,
            idle_s=None if self._desk is None or known_s is None else round(known_s, 1),
            withheld=self.consent.why,
            yielded=self.journal.yielded(),
            delay_s=network.delay_s,
            throughput_bytes_s=network.throughput_bytes_s,
        )

    @property
    def is_in_use(self) -> bool:
        """Whether somebody is at the desk, or nobody can tell; never where nobody asks."""
        return self._was_there

    def nudge(self) -> None:
        """Look now: the owner has changed something."""
        self._stirred.set()

    # What it does by itself.

    def sample(self) -> None:
        """Everything that changes slowly; a look follows soon."""
        self._stirred.set()
        now = time.localtime()
        self._signs = Signs(
            self._computer.cores,
            self._meter.spare_cpu,
            memory_available_bytes=self._computer.memory_available_bytes(),
            on_battery=self._battery.is_in_use(),
            is_time=not self._heeds_hours or self._hours.include(now.tm_wday, now.tm_hour * 60 + now.tm_min),
            program=self._programs.found(),
        )
        for attempt in self._ladder.frozen:  # a process that was just being made when the others stopped goes on
            self._runner.freeze(attempt)
        self._relieve_disk()

    def _relieve_disk(self) -> None:
        """One attempt at a time, the youngest, and the next when what it left is gone."""
        in_hand = {held.attempt for _, held in self._runner.in_hand()}
        attempt = self._ladder.youngest
        if not self._offer.disk_shortage or attempt is None or self._leaving in in_hand:
            return
        self._leaving = attempt
        log.info("attempt %s is given back: %s", attempt, self._offer.disk_shortage)
        self._runner.give_back(attempt, self._offer.disk_shortage)
        self.ended(attempt)

    def look(self) -> None:
        now = time.monotonic()
        self.sight = self._desk.look() if self._desk else Sight(math.inf, "")
        signs = replace(self._signs, idle_s=self.sight.idle_s, paused=self.pause.words(time.time()))
        input_at = self._input.looked(self.sight.certain_idle_s, now, is_fresh=self.sight.is_fresh)
        is_here = is_there(self.terms, signs)
        has_come = is_here and not self._was_there and self.sight.idle_s is not None
        consent = decide(self.terms, signs, self._offer.most, self.consent.slots)
        steps = self._ladder.step(consent, now)
        has_news = consent != self.consent or is_here != self._was_there or steps != Steps()
        self._note(consent)
        self._was_there = is_here
        self._carry_out(steps, input_at if has_come else now, has_come)
        if self._has_settled() or has_news:
            self._on_change()

    async def _attend(self) -> NoReturn:
        while True:
            self._stirred.clear()
            self.look()
            pause_s = self._until_next_look_s()
            self._rests = pause_s is None and self._desk is not None
            with suppress(TimeoutError):  # not wait_for: in Python 3.11 it may lose a cancellation
                async with asyncio.timeout(pause_s):
                    await self._stirred.wait()

    def _until_next_look_s(self) -> float | None:
        """None: when something happens, or with the next sample."""
        if self._stopping:
            return _LOOK_AGAIN_S
        if self._desk is None:
            return None
        if self._ladder.slots_at_work:
            return LOOK_EVERY_S
        return _LOOK_WHILE_FROZEN_S if self._ladder.frozen else None

    def _note(self, consent: Consent) -> None:
        if consent != self.consent:
            log.info("tasks may use %d of %d slots%s", consent.slots, self._offer.most, _because(consent.why))
        self.consent = consent
        self._limit_offer()

    def _limit_offer(self) -> None:
        consent = self.consent
        slots = min(consent.slots, self._ladder.slots_in_hand) if consent.short_of_memory else consent.slots
        self._offer.limit(slots)

    def _carry_out(self, steps: Steps, since: float, after_input: bool) -> None:
        for attempt in steps.give_back:
            log.info("attempt %s is given back%s", attempt, _because(self.consent.why))
            self._runner.give_back(attempt, self.consent.why)
            self.ended(attempt)
        for attempt in steps.thaw:
            log.info("attempt %s goes on", attempt)
            self._runner.thaw(attempt)
            if self._stopping:
                self._stopping.attempts.pop(attempt, None)
        if steps.freeze:
            earlier = self._stopping
            attempts = dict.fromkeys(steps.freeze) | (earlier.attempts if earlier else {})
            self._stopping = _Stopping(attempts, since, self.consent.why, after_input, len(attempts))

    def _has_settled(self) -> bool:
        """Stop what is to stop, again where it still moves; note how long it took once all stands still."""
        stopping = self._stopping
        if stopping is None:
            return False
        for attempt in list(stopping.attempts):
            if self._runner.freeze(attempt):
                del stopping.attempts[attempt]
        if stopping.attempts:
            return False
        took_s = time.monotonic() - stopping.since
        self._stopping = None
        self.journal.note(Yield(time.time(), stopping.why, stopping.count, took_s, stopping.after_input))
        origin = f"the input that {self.sight.by} saw" if stopping.after_input else "it was due"
        log.info("%d frozen, %.3f s after %s%s", stopping.count, took_s, origin, _because(stopping.why))
        return True


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _open_desk() -> Desk:
    from loopline_worker.presence.available import open_desk

    return open_desk()
