"""The fast world with hosts that come and go: sessions, leases and lost attempts, as a live master has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from loopline_master.core.events import Event, MasterStarted, SchedulerSettings, WorkerJoined, WorkerLeft
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import OCCUPYING
from loopline_shared.model import AttemptId, Result
from loopline_simulator.fast.availability import Absence, Interval
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.kernel import Appointment

_RENEWALS = 4
"""Rounds of reports in each lease, so that the lease of a connected host never runs out."""


class ChangingWorld(FastWorld):
    """The fast world whose hosts are connected in given intervals.

    ``stays`` gives each host's intervals, sorted and disjoint (they may be endless); a host without an entry is
    always connected. ``absence`` is the fate of attempts that run when their host leaves. A host that sleeps must
    have a speed of 0 until it is back (availability.Interrupted).

    ``last_lease_s``: time until a host that left counts as lost. With it, leases in ``settings`` may be endless: then
    no host renews its lease, which would take most of the time of a run of many days.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        arrivals: Iterable[Arrival],
        observe: Callable[[Effects], None] = lambda effects: None,
        *,
        stays: Mapping[str, Iterable[Interval]] | None = None,
        absence: Absence = Absence.LOSES,
        last_lease_s: float | None = None,
    ) -> None:
        self._last_lease_s = last_lease_s
        self._stays: dict[str, Iterator[Interval]] = {name: iter(given) for name, given in (stays or {}).items()}
        self._loses = absence is Absence.LOSES
        self._online: set[str] = set()
        self._alarm: tuple[float, Appointment] | None = None
        self._changes = 0  # changes of availability still to come
        super().__init__(settings, hosts, arrivals, observe)

    def _begin(self, settings: SchedulerSettings) -> None:
        self._step([MasterStarted(settings)])
        present = [host for host in self._hosts.values() if host.name not in self._stays]
        for name in self._stays:
            present += self._next_stay(self._hosts[name])
        self.connect(present)
        self._keep_leases(settings)

    # --- coming and going -----------------------------------------------------------------------------------

    def connect(self, hosts: Sequence[Host]) -> None:
        """Open a new session for each host and report its attempts and the results that it finished while away."""
        for host in hosts:
            self._online.add(host.name)
            host.session, host.seq, host.seen = host.session + 1, 0, 0
        self._step([WorkerJoined(host.name, host.session, str(host.boots), host.facts) for host in hosts])
        self._step([self._news(host) for host in hosts])

    def disconnect(self, host: Host, *, loses: bool) -> None:
        """Close the host's link; until its lease runs out the host is believed to be at work."""
        if self._last_lease_s is not None:
            self._report_last(host, self._last_lease_s)
        self._online.discard(host.name)
        if loses:
            self.lose(host)
        self._step([WorkerLeft(host.name, host.session)])

    def _report_last(self, host: Host, lease_s: float) -> None:
        """Report for a host that is about to go; its lease is renewed by that long."""
        state = self.scheduler.state
        endless = state.settings
        state.settings = replace(endless, lease_s=lease_s, report_every_s=lease_s / _RENEWALS)
        effects = self.scheduler.step([self._news(host)], self.kernel.now)
        state.settings = endless
        self._carry_out(effects)

    def lose(self, host: Host) -> None:
        """Drop all attempts of the host."""
        for _, end in host.running.values():
            end.cancel()
        host.running.clear()
        host.taken.clear()
        host.waiting.clear()
        host.boots += 1

    def _next_stay(self, host: Host) -> list[Host]:
        """Schedule the host's next stay; return the host in a list if the stay has begun already."""
        stay = next(self._stays[host.name], None)
        if stay is None:
            return []
        if stay.end < math.inf:
            self._expect(max(stay.end, self.kernel.now), lambda: self._go(host))
        if stay.start <= self.kernel.now:
            return [host]
        self._expect(stay.start, lambda: self.connect([host]))
        return []

    def _expect(self, time: float, call: Callable[[], object]) -> None:
        self._changes += 1

        def happen() -> None:
            self._changes -= 1
            call()

        self.kernel.at(time, happen)

    def _go(self, host: Host) -> None:
        self.disconnect(host, loses=self._loses)
        if not self.is_over:
            self.connect(self._next_stay(host))

    def _news(self, host: Host) -> Event:
        unsent, host.unsent = host.unsent, []
        return self._report(host, unsent)

    def _brought(self, host: Host, result: Result) -> None:
        if host.name in self._online:
            super()._brought(host, result)
        else:
            host.unsent.append(result)

    # --- time -----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if all jobs have arrived and ended."""
        return not self._to_come and not any(job.is_live for job in self.scheduler.state.jobs.values())

    def _carry_out(self, effects: Effects) -> Effects:
        super()._carry_out(effects)
        due = self.scheduler.wake_at
        if due is not None and due < math.inf and (self._alarm is None or due < self._alarm[0]):
            self._set_alarm(due)
        return effects

    def _set_alarm(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm[1].cancel()
        due = max(due, self.kernel.now)
        self._alarm = due, self.kernel.at(due, self._wake)

    def _wake(self) -> None:
        """Step the scheduler at its alarm: a lease may have run out, or a job may have starved for too long."""
        self._alarm, due = None, self.scheduler.wake_at
        if self.is_over or due is None:
            return
        if due <= self.kernel.now:
            self._step([])
        else:
            self._set_alarm(due)

    def _keep_leases(self, settings: SchedulerSettings) -> None:
        if math.isfinite(settings.lease_s):
            self.kernel.at(self.kernel.now + settings.lease_s / _RENEWALS, self._renew)

    def _renew(self) -> None:
        """Report for each connected host whose lease would run out before the round after the next.

        The rounds end when nothing more can happen.
        """
        attempts = self.scheduler.state.attempts.values()
        if self.is_over or not (self._to_come or self._changes or any(a.state in OCCUPYING for a in attempts)):
            return
        settings = self.scheduler.state.settings
        soon = self.kernel.now + 1.5 * settings.lease_s / _RENEWALS
        due = [name for name in sorted(self._online) if self.scheduler.state.workers[name].lease_until <= soon]
        if due:
            self._step([self._news(self._hosts[name]) for name in due])
        self._keep_leases(settings)

    def _start(self, host: Host, attempt: AttemptId) -> None:
        self._until(host, attempt, self._end_of(host, attempt), partial(self._end, host, attempt))

    def _until(self, host: Host, attempt: AttemptId, end: float, call: Callable[[], None]) -> None:
        """Occupy the host with the attempt until ``end``, which may be infinite."""
        timer = Appointment(call) if end == math.inf else self.kernel.at(end, call)
        host.running[attempt] = (self.kernel.now, timer)
