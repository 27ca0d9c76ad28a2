"""A grid and its jobs, drawn from a seed: small enough for many runs, with every kind of load and fault."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Facts
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.hosts import Pattern
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.full.faults import ROUGH, Faults
from loopline_simulator.full.network import Conditions
from loopline_simulator.full.sleep import Sleep
from loopline_simulator.streams import Generator, stream

_OWNERS = Pattern(to_loaded=0.02, to_steady=0.05, steady=(0.7, 1.0), loaded=(0.1, 0.5))
_MODELS = (("old", 0.7), ("new", 1.6))
_SIZES = (30.0, 60.0, 60.0, 120.0, 240.0)
ROUGH_NETWORK = Conditions(delay_s=0.005, jitter_s=0.1, loss=0.01, duplication=0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Parameters of a run. ``Scenario()`` is far worse than any real grid."""

    machines: int = 5
    max_slots: int = 2
    jobs: int = 12
    max_tasks: int = 8  # of one job
    interval_s: float = 20.0  # mean, between two jobs
    known_sizes: float = 0.9  # share of jobs whose user says how large they are
    gangs: float = 0.0  # share of jobs that run on two or three machines at once ...
    replicas: float = 0.0  # ... and share of these that request a replica
    checkpoints: float = 0.0  # share of jobs whose tasks save their state
    conditions: Conditions = ROUGH_NETWORK
    faults: Faults = ROUGH
    sleep: Sleep | None = None  # None: computers do not sleep
    until_s: float = 20_000.0  # by then all must be done
    check_every: int = 1  # steps; each check costs O(everything)

    def hosts(self, seed: int) -> list[Host]:
        return [self._host(number, stream(seed, "host", number)) for number in range(1, self.machines + 1)]

    def arrivals(self, seed: int) -> list[Arrival]:
        random, at, arrivals = stream(seed, "jobs"), 0.0, []
        for number in range(self.jobs):
            at += float(random.exponential(self.interval_s))
            spec = self._with_nodes(self._spec(random), stream(seed, "gang", number))
            arrivals.append(Arrival(at, self._with_checkpoints(spec, stream(seed, "checkpoint", number))))
        return arrivals

    def _host(self, number: int, random: Generator) -> Host:
        model, peak = _MODELS[int(random.integers(len(_MODELS)))]
        slots = int(random.integers(1, self.max_slots + 1))
        labels = ("big",) if random.random() < 0.5 or number == 1 else ()  # some jobs need such a machine
        facts = Facts(
            "linux",
            "x86_64",
            "3.11",
            "0",
            model,
            cpus=slots,
            memory_bytes=10**9,
            slots=slots,
            labels=labels,
            speed=peak,
            gangs=True,
            energy=(EnergySource.DECLARED,) if number % 2 else (),
        )
        if self.sleep:
            facts = replace(facts, link=HostLink(f"10.0.{number % self.sleep.subnets}.0/24", ""))
        return Host(f"machine-{number}", facts, _OWNERS.speed(peak, random))

    def _with_nodes(self, spec: JobSpec, random: Generator) -> JobSpec:
        """Return the job, or a gang of as many tasks; of these every machine can have a member."""
        if random.random() >= self.gangs:
            return spec
        nodes = int(random.integers(2, 1 + min(3, self.machines)))
        most = 2 if random.random() < self.replicas else None
        return spec.model_copy(update={"nodes": nodes, "requires": Requirements(), "max_replicas": most})

    def _with_checkpoints(self, spec: JobSpec, random: Generator) -> JobSpec:
        if random.random() >= self.checkpoints:
            return spec
        return spec.model_copy(update={"checkpoint": CheckpointSpec()})

    def _spec(self, random: Generator) -> JobSpec:
        count = int(random.integers(1, self.max_tasks + 1))
        known, label = random.random() < self.known_sizes, random.random() < 0.15
        size = float(random.choice(_SIZES))
        return JobSpec(
            command=["work"],
            parameters={"i": Range(range=[1, count])} if count > 1 else None,
            size=size if known else None,
            requires=Requirements(labels=["big"] if label else []),
        )
