"""Queueing disciplines of a scenario's servers (the paper's section 3.1.3: first come; others as future work)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from loopline_simulator.kernel import Kernel
from loopline_simulator.papers.global_computing import servers
from loopline_simulator.papers.global_computing.part import Part, Positive


class FirstCome(Part):
    kind: Literal["first-come"] = "first-come"

    def server(self, kernel: Kernel, speed: float) -> servers.Server:
        return servers.FirstComeServer(kernel, speed)


class ProcessorSharing(Part):
    kind: Literal["processor-sharing"] = "processor-sharing"

    def server(self, kernel: Kernel, speed: float) -> servers.Server:
        return servers.ProcessorSharingServer(kernel, speed)


class RoundRobin(Part):
    kind: Literal["round-robin"] = "round-robin"
    quantum_s: Positive

    def server(self, kernel: Kernel, speed: float) -> servers.Server:
        return servers.RoundRobinServer(kernel, speed, self.quantum_s)


Discipline = Annotated[FirstCome | ProcessorSharing | RoundRobin, Field(discriminator="kind")]
