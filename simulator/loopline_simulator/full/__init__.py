"""The full world: the live scheduler, sessions and workers, and every disaster, in virtual time.

``run`` runs one seed and returns a summary; ``live_through`` returns the world itself, or raises.
"""

from __future__ import annotations

import hashlib
from dataclasses import KW_ONLY, dataclass

from loopline_master.core.events import SchedulerSettings
from loopline_shared.model import AttemptState
from loopline_simulator.full.faults import ROUGH, Faults
from loopline_simulator.full.network import Conditions
from loopline_simulator.full.scenario import ROUGH_NETWORK, Scenario
from loopline_simulator.full.sleep import NIGHT, Sleep
from loopline_simulator.full.timed import TimedWorld

__all__ = [
    "NIGHT",
    "ROUGH",
    "ROUGH_NETWORK",
    "Conditions",
    "Faults",
    "Scenario",
    "Sleep",
    "Summary",
    "live_through",
    "make",
    "run",
    "summary",
]

_ROUGH = Scenario()


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of one run. ``broken`` describes the first violation; empty if every check held."""

    seed: int
    policy: str
    order: str
    _: KW_ONLY
    jobs: int = 0
    tasks: int = 0  # that were ever started
    attempts: int = 0
    lost_attempts: int = 0  # that stayed lost
    steps: int = 0  # of the scheduler
    events: int = 0  # of the kernel
    ended_at: float = 0.0  # the last job, in virtual seconds
    crashes: int = 0  # of the master
    reboots: int = 0
    kills: int = 0  # attempts that a reboot ended
    saves: int = 0  # checkpoints taken
    resumptions: int = 0  # attempts that continued from one
    stops: int = 0  # of an agent, by its owner
    breaks: int = 0  # of links
    partitions: int = 0
    frames: int = 0
    lost: int = 0  # frames
    duplicated: int = 0  # frames
    sleeps: int = 0  # of computers
    suspended_at_work: int = 0  # ... while tasks ran
    woken: int = 0  # by packets
    returns: int = 0  # woken by their owners
    passings: int = 0
    digest: str = ""  # SHA-256 of the event log
    broken: str = ""


def run(seed: int, settings: SchedulerSettings, scenario: Scenario = _ROUGH) -> Summary:
    """Run one seed. A violation is reported in the summary; ``live_through`` shows its traceback."""
    try:
        world = make(seed, settings, scenario)
    except Exception as error:  # the run looks for our own bugs
        return Summary(seed, settings.policy, str(settings.order), broken=_said(error))
    try:
        world.run(scenario.until_s)
    except Exception as error:
        return summary(seed, world, _said(error))
    return summary(seed, world)


def live_through(seed: int, settings: SchedulerSettings, scenario: Scenario = _ROUGH) -> TimedWorld:
    """Return the world at its end. Raises AssertionError (or the bug's own exception) at the first violation."""
    world = make(seed, settings, scenario)
    world.run(scenario.until_s)
    return world


def make(seed: int, settings: SchedulerSettings, scenario: Scenario = _ROUGH) -> TimedWorld:
    """Return the world at its beginning."""
    return TimedWorld(
        seed,
        settings,
        scenario.hosts(seed),
        scenario.arrivals(seed),
        conditions=scenario.conditions,
        faults=scenario.faults,
        sleep=scenario.sleep,
        check_every=scenario.check_every,
    )


def summary(seed: int, timed: TimedWorld, broken: str = "") -> Summary:
    """Return the counts of a world until now."""
    store, settings = timed.world.store, timed.world.settings
    counts = timed.counts + timed.disasters.counts + timed.network.counts
    if timed.nights:
        counts += timed.nights.counts
    return Summary(
        seed,
        settings.policy,
        str(settings.order),
        jobs=len(store.jobs),
        tasks=len(store.tasks),
        attempts=len(store.attempts),
        lost_attempts=sum(attempt.state is AttemptState.LOST for attempt in store.attempts.values()),
        resumptions=len(store.resumed),
        events=timed.kernel.events,
        ended_at=max((job.finished_at or 0.0 for job in store.jobs.values()), default=0.0),
        passings=len(store.passings),
        digest=hashlib.sha256(b"\n".join(store.log)).hexdigest(),
        broken=broken,
        **counts,
    )


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) and str(error) else repr(error)
