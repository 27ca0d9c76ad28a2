"""A run of a trace, and everything that it depends on. Cases travel to other processes: they name their files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_simulator.fast import trial
from loopline_simulator.fast.availability import Absence, Interrupted, Interval, absences, alternating
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.metrics import Measures, Recorder
from loopline_simulator.fast.saving_world import Saving, SavingWorld
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.streams import stream
from loopline_simulator.traces.files import named, opened
from loopline_simulator.traces.fta import read_event_trace
from loopline_simulator.traces.intervals import TracedMachine, read_machines
from loopline_simulator.traces.swf import Selection, arrivals, read_jobs

_STAYS = 10_000
"""Largest number of stays drawn for a host."""


@dataclass(frozen=True, slots=True)
class TraceCase:
    seed: int
    policy: str
    order: Order
    _: KW_ONLY
    swf: Path
    selection: Selection
    park: Park
    availability: Path | None = None
    absence: Absence = Absence.LOSES
    lease_s: float = 300.0
    stay_s: float | None = None  # mean stay of hosts, without an availability file; None: always
    away_s: float = 3600.0  # mean absence of hosts
    presence: Path | None = None
    share: float = 0.0  # of a host's speed that is left while its owner uses it
    saving: Saving | None = None  # checkpoints; None: none, and lost work by attempts alone


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    case: TraceCase
    jobs: int
    hosts: int
    measures: Measures
    events: int  # calls that the kernel made


def run(case: TraceCase) -> TraceAnswer:
    """Run the case. Raises LooplineError if a file is unusable or no job finished."""
    jobs = load_jobs(case.swf, case.selection)
    hosts, stays = _hosts(case)
    recorder = Recorder(hosts)
    settings = trial.settings(case.policy, case.order)
    make = ChangingWorld if case.saving is None else partial(SavingWorld, saving=case.saving)
    world = make(settings, hosts, jobs, recorder, stays=stays, absence=case.absence, last_lease_s=case.lease_s)
    world.run()
    ends = [job.finished for job in recorder.jobs() if job.finished is not None]
    if not ends:
        raise LooplineError("trace", "no job finished", "were any machines there, and for long enough?")
    means = [host.speed.work_between(0.0, max(ends)) / max(ends) for host in hosts]
    measures = recorder.measures(sum(means), max(means))
    if isinstance(world, SavingWorld):
        measures = world.corrected(measures)
    return TraceAnswer(case, len(jobs), len(hosts), measures, world.kernel.events)


def load_jobs(file: Path, selection: Selection) -> list[Arrival]:
    with opened(file) as lines, named(file):
        jobs = list(arrivals(read_jobs(lines), selection))
    if not jobs:
        hint = "a job must have a run time and processors; are --since and --until in the file's seconds?"
        raise LooplineError("trace", f"{file}: no job in it is chosen", hint)
    return jobs


def load_machines(file: Path) -> dict[str, TracedMachine]:
    """Read intervals from a CSV, or from a file ``.tab`` (``.tab.gz``) of the Failure Trace Archive."""
    with opened(file) as lines, named(file):
        return read_event_trace(lines) if ".tab" in file.suffixes else read_machines(lines)


def _hosts(case: TraceCase) -> tuple[list[Host], dict[str, Iterable[Interval]]]:
    """Return the hosts of the park or of the availability file, with the file's speeds where it says them."""
    hosts, stays = _machines(case)
    present = load_machines(case.presence) if case.presence is not None else {}
    strangers = present.keys() - {host.name for host in hosts}
    if strangers:
        raise LooplineError("trace", f"{case.presence}: there is no host {min(strangers)} whose owner could be there")
    for host in hosts:
        if host.name in present:
            host.speed = Interrupted(host.speed, present[host.name].stays, case.share)
    return hosts, stays


def _machines(case: TraceCase) -> tuple[list[Host], dict[str, Iterable[Interval]]]:
    known = load_machines(case.availability) if case.availability is not None else None
    park = case.park if known is None else replace(case.park, count=len(known))
    hosts = park.hosts(case.seed)
    for number, (machine, host) in enumerate(zip((known or {}).items(), hosts, strict=False)):
        host.name, given = machine[0], machine[1].speed
        if given:
            host.speed = given
            host.joules_per_work = park.joules_per_work(number, given.highest) if given.highest else 0.0
    stays = _drawn_stays(case, hosts)
    if known:
        stays = {name: machine.stays for name, machine in known.items()}
    if case.absence is Absence.SLEEPS:
        asleep = {name: list(of_host) for name, of_host in stays.items()}
        for host in hosts:
            if host.name in asleep:
                host.speed = Interrupted(host.speed, absences(asleep[host.name]))
        stays = dict(asleep)
    return hosts, {name: map(_from_zero, of_host) for name, of_host in stays.items()}


def _drawn_stays(case: TraceCase, hosts: Sequence[Host]) -> dict[str, Iterable[Interval]]:
    """Return stays that are drawn as the run comes to them, for most runs are over long before the last."""
    if case.stay_s is None:
        return {}
    laws = case.stay_s, case.away_s
    return {host.name: islice(alternating(stream(case.seed, "stays", host.name), *laws), _STAYS) for host in hosts}


def _from_zero(stay: Interval) -> Interval:
    return Interval(max(0.0, stay.start), stay.end)
