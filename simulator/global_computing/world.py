"""One run: requests on their way from the client, through a network, a server and a network, back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from simulator.global_computing.laws import draws
from simulator.global_computing.network import Line, Network
from simulator.global_computing.scenario import KB, Client, Scenario, site_of
from simulator.global_computing.schedulers import SCHEDULERS
from simulator.global_computing.servers import Server
from simulator.global_computing.traffic import Packets
from simulator.kernel import Kernel
from simulator.streams import stream

_NEWS = 0.25
"""Weight of the last transfer in what is believed of a network."""
OUT, BACK = "out", "back"


@dataclass(slots=True)
class Request:
    """All moments in seconds."""

    client: int
    server: int
    issued: float
    arrived: float = 0.0  # its data, at the server
    computed: float = 0.0
    ended: float = 0.0


class _Enough(Exception):
    """So many requests have been completed as were to be."""


@dataclass(slots=True)
class World:
    """What a scheduler sees (``schedulers.Grid``), and all that it does not."""

    scenario: Scenario
    scheduler: str
    seed: int
    kernel: Kernel = field(default_factory=Kernel)
    ended: list[Request] = field(default_factory=list)
    servers: Sequence[Server] = ()
    first_server: int = 0
