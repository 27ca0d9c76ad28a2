"""An agent in virtual time: when it connects, reports, loses patience and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.power import GoodBye, SleepKind
from loopline_simulator.full.grid_world import GridWorld
from loopline_simulator.full.machine import Machine
from loopline_simulator.full.network import Network
from loopline_simulator.kernel import Appointment, Call, Kernel
from loopline_simulator.streams import Generator

_OPEN_WITHIN_S = 10.0
_NEWS_WITHIN_S = 0.5
_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 30.0
_SAVES_EVERY_S = 8.0  # mean
GOOD_BYE_S = 1.0
"""The longest time from a good-bye until the computer sleeps."""
DRAIN_S = 2.0
"""How long a stopped agent waits for the master to have everything."""


class Fates(Protocol):
    """The course of each attempt, as the seed has it."""

    def fate(self, machine: Machine, attempt: AttemptId, since: float) -> tuple[float, Outcome]:
        """Return when an attempt that starts on a machine at some time will end, and how."""

    def saved(self, machine: Machine, attempt: AttemptId, since: float, name: str) -> None:
        """Note a checkpoint that the attempt has taken now."""


class Agent:
    """Drives one machine of the world; ``is_on`` while it runs and is not about to stop."""

    def __init__(
        self,
        kernel: Kernel,
        world: GridWorld,
        network: Network,
        machine: Machine,
        fates: Fates,
        random: Generator,
        is_over: Callable[[], bool],
    ) -> None:
        """``random`` draws its pauses; once ``is_over``, no timer of its does anything."""
        self.machine, self.is_on = machine, False
        self._kernel, self._world, self._network = kernel, world, network
        self._fates, self._random, self._is_over = fates, random, is_over
        self._ends: dict[AttemptId, Appointment] = {}
        self._timers: dict[str, Appointment] = {}
        self._tries = 0
        self._good_bye: GoodBye | None = None
        self._asleep_since: float | None = None
        self._is_off = False

    # --- the computer ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Switch the computer on: its agent finds the results kept in the spool."""
        self.machine.boot()
        self.is_on, self._tries = True, 0
        self._good_bye = self._asleep_since = None
        self._connect()

    @property
    def is_asleep(self) -> bool:
        """True while the computer is suspended, or was switched off by ``sleep``."""
        return self._asleep_since is not None

    def sleep(self, good_bye: GoodBye) -> None:
        """Say good-bye, and sleep as soon as the master has closed the link, or after a second."""
        self._good_bye = good_bye
        if self.machine.is_welcome:
            self.machine.report(good_bye)
            self._forward()
        self._kernel.at(self._kernel.now + GOOD_BYE_S, lambda: self._fall_asleep(good_bye))

    def _fall_asleep(self, good_bye: GoodBye) -> None:
        if self._good_bye is not good_bye:
            return
        self._world.cut(self.machine.name, noticed=False)
        if good_bye.kind is SleepKind.OFF:
            self.machine.lose_power()
        self._rest()
        self._asleep_since, self._good_bye = self._kernel.now, None
        self._is_off = good_bye.kind is SleepKind.OFF

    def wake(self) -> None:
        """Start the computer again; after a suspend its processes continue."""
        if self._is_off or self._asleep_since is None:
            self.start()
            return
        self.machine.resume(self._kernel.now - self._asleep_since)
        self.is_on, self._tries, self._asleep_since = True, 0, None
        self._follow_processes()
        self._connect()

    def power_off(self, *, noticed: bool) -> None:
        """Cut the power: tasks and link are lost, and if not ``noticed``, the master finds out by the lease alone."""
        self._world.cut(self.machine.name, noticed=noticed)
        self.machine.lose_power()
        self._rest()

    def stop(self) -> None:
        """Stop the agent for its owner: running tasks return to the queue, and a connected master gets a Report."""
        self.is_on = False
        self._save()
        self.machine.stop()
        self._follow_processes()
        self._report()
        self._set("drain", DRAIN_S, self._leave)

    def break_link(self, *, noticed: bool) -> None:
        """Break the connection, with all frames under way; ``noticed``: at the master's end as well."""
        self._world.cut(self.machine.name, noticed=noticed)
        self._reconnect_later()

    def _leave(self) -> None:
        self._hang_up()
        self.machine.lose_power()
        self._rest()

    def _rest(self) -> None:
        self.is_on, self._good_bye = False, None
        for appointment in (*self._ends.values(), *self._timers.values()):
            appointment.cancel()
        self._ends.clear()
        self._timers.clear()

    # --- the link -------------------------------------------------------------------------------------------

    def on_frame(self) -> None:
        """Reset the timers after the machine has handled a frame."""
        if self.machine.link is None and self._good_bye:
            self._fall_asleep(self._good_bye)
        elif self.machine.link is None:
            self._reconnect_later()
        elif self.machine.is_welcome:
            settings, self._tries = self._world.settings, 0
            self._set("patience", max(settings.lease_s, settings.report_every_s, 1.0), self._give_up)
            self._report_in_time()
        self._follow_processes()

    def _connect(self) -> None:
        self._world.connect(self.machine.name)
        self._forward()
        self._set("patience", _OPEN_WITHIN_S, self._give_up)

    def _give_up(self) -> None:
        """Hang up on a master that has not answered for too long, and reconnect later."""
        self._hang_up()
        self._reconnect_later()

    def _hang_up(self) -> None:
        link = self.machine.link
        if link is not None:
            self.machine.hang_up()
            self._network.forward(link)

    def _reconnect_later(self) -> None:
        for timer in ("patience", "report", "news"):
            self._cancel(timer)
        if self.is_on:
            longest_s = min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2**self._tries)
            self._tries = min(self._tries + 1, 30)
            self._set("connect", longest_s * float(self._random.uniform(0.5, 1.0)), self._connect)

    # --- reports --------------------------------------------------------------------------------------------

    def _report_in_time(self) -> None:
        """Report at once if there is a result, soon if an attempt has begun, else before the lease runs out."""
        if self.machine.core.has_results:
            self._report()
        elif self.machine.core.has_news and "news" not in self._timers:
            self._set("news", _NEWS_WITHIN_S, self._report_news)
        elif "report" not in self._timers:  # the first has just left, in answer to the Welcome
            self._set("report", self._world.settings.report_every_s, self._report)

    def _report_news(self) -> None:
        if self.machine.core.has_news:
            self._report()

    def _report(self) -> None:
        if self.machine.is_welcome:
            self.machine.report()
            self._forward()
            self._set("report", self._world.settings.report_every_s, self._report)

    def _forward(self) -> None:
        if self.machine.link is not None:
            self._network.forward(self.machine.link)

    # --- processes ------------------------------------------------------------------------------------------

    def _follow_processes(self) -> None:
        for attempt in [attempt for attempt in self._ends if attempt not in self.machine.processes]:
            self._ends.pop(attempt).cancel()
        for attempt, since in self.machine.processes.items():
            if attempt not in self._ends:
                end, outcome = self._fates.fate(self.machine, attempt, since)
                self._ends[attempt] = self._kernel.at(max(end, self._kernel.now), self._ending(attempt, outcome))
        if self.is_on and "save" not in self._timers and self.machine.checkpoints.takes_any(self.machine.processes):
            self._set("save", float(self._random.exponential(_SAVES_EVERY_S)), self._save_and_report)

    def _save_and_report(self) -> None:
        self._save()
        self._report()
        self._follow_processes()

    def _save(self) -> None:
        """Take a checkpoint of each task that takes any."""
        for attempt, since in self.machine.processes.items():
            name = self.machine.checkpoints.save(attempt, self._kernel.now - since)
            if name:
                self._fates.saved(self.machine, attempt, since, name)

    def _ending(self, attempt: AttemptId, outcome: Outcome) -> Call:
        def end() -> None:
            del self._ends[attempt]
            self.machine.end(attempt, outcome)
            self._follow_processes()  # a waiting attempt may have begun
            self._report()

        return end

    # --- timers ---------------------------------------------------------------------------------------------

    def _set(self, name: str, seconds: float, call: Call) -> None:
        def ring() -> None:
            del self._timers[name]
            if not self._is_over():
                call()

        self._cancel(name)
        self._timers[name] = self._kernel.at(self._kernel.now + seconds, ring)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
