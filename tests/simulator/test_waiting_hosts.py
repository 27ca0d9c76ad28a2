"""Prefetching hosts of the fast world: tasks begin in order, no more than fit, and all are done."""

from collections.abc import Iterator

import pytest

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.invariants import check
from loopline_master.core.policies import REGISTRY
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptState, Facts
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, FastWorld, Host

AHEAD = sorted(name for name in REGISTRY if name != "space-partition")


def arrivals() -> Iterator[Arrival]:
    for number in range(6):
        count = 3 + number
        parameters = {"i": Range(range=[1, count])}
        yield Arrival(
            float(number), JobSpec(command=["work"], parameters=parameters, size=count * (0.5 + number % 3))
        )


class Watched(FastWorld):
    """Checked at every step."""

    waited = 0

    def _step(self, events: list) -> Effects:  # type: ignore[type-arg]
        effects = super()._step(events)
        check(self.scheduler.state)
        for host in self._hosts.values():
            assert sum(host.taken.values()) <= host.facts.slots
            assert host.taken.keys() == host.running.keys()
            self.waited += bool(host.waiting)
        return effects


@pytest.mark.parametrize("policy", AHEAD)
def test_all_comes_to_its_end_wherever_it_waits(policy: str) -> None:
    ended: dict[object, AttemptState] = {}

    def watch(effects: Effects) -> None:
        ended.update((attempt.id, attempt.state) for attempt in effects.attempts.values())

    facts = [
        Facts("linux", "x86_64", "3.11", "0", "m", cpus=n, memory_bytes=10**9, slots=n, speed=float(n))
        for n in (1, 2)
    ]
    hosts = [Host(f"pc-{n}", own, Steady(own.speed)) for n, own in enumerate(facts)]
    settings = SchedulerSettings(policy, lease_s=1e9, prefetch_s=2.0, max_prefetch=5)
    world = Watched(settings, hosts, arrivals(), watch)
    world.run()
    assert world.waited, "something did wait"
    assert not world.scheduler.state.jobs
    assert sum(state is AttemptState.SUCCEEDED for state in ended.values()) >= sum(3 + n for n in range(6))
    assert not any(host.running or host.waiting for host in hosts)
