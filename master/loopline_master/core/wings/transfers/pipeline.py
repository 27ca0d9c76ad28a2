"""Requests to the planner and its answer. The answer is plain data, so that it can be logged and replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loopline_master.core.wings.transfers.network import Network


@dataclass(frozen=True, slots=True)
class Demand:
    """A host wants a file. A demand is *overdue* if it has waited too long: it is given a minimum rate."""

    file: str  # its SHA-256, or any name
    host: str
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A file on its way along a line of hosts: the first has it, and each passes it on to the next."""

    file: str
    hosts: tuple[str, ...]
    rate: float  # bytes per second, the same all along the line

    @property
    def receivers(self) -> tuple[str, ...]:
        return self.hosts[1:]


@dataclass(frozen=True, slots=True)
class Fetch:
    """A host's part in a pipeline: it takes the file from one host, at a rate, and passes it on to at most one."""

    file: str
    host: str
    upstream: str
    downstream: str | None
    rate: float  # bytes per second


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """A set of pipelines, and the throughput at which data arrives at all receivers together (the objective).

    A host is in at most one pipeline of a file. Hosts that no source can reach are in none.
    """

    pipelines: tuple[Pipeline, ...] = ()
    objective: float = 0.0  # bytes per second

    def fetches(self) -> Iterator[Fetch]:
        """Yield each receiver's part."""
        for pipeline in self.pipelines:
            line = pipeline.hosts
            for upstream, host, downstream in zip(line, line[1:], (*line[2:], None), strict=False):
                yield Fetch(pipeline.file, host, upstream, downstream, pipeline.rate)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """All inputs of a plan. The same request always gives the same plan.

    ``running`` are pipelines of the plan in force. They are kept, except for hosts that no longer want the file,
    unless another source is clearly better.
    """

    network: Network
    holders: Mapping[str, tuple[str, ...]]  # of each wanted file
    demands: tuple[Demand, ...]
    running: tuple[Pipeline, ...] = field(default=())
    least_rate: float = 0.0  # bytes per second, for overdue demands
    leads: Mapping[str, Mapping[str, tuple[str, float]]] = field(default_factory=dict)
    """For each wave, the holders that are receivers of an earlier wave: its name, and how many bytes they are ahead.
    Such a holder passes on the file at its own rate, and its lead in addition."""
