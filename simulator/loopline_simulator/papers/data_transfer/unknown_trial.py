"""Trials of one file that goes to all hosts of a lab with a narrow cable, by how much is known of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.table import Table

from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.transfers.network_file import read_network
from loopline_shared.protocol.host_link import HostLink
from loopline_simulator.experiments.tables import plain
from loopline_simulator.papers.data_transfer.unknown_network import UnknownNetwork
from loopline_simulator.statistics import estimate
from loopline_simulator.streams import stream

KNOWN = ("written down", "learnt on the way", "assumed for good")
_SUBNET = "10.0.0.0/24"
_MBIT = 1e6 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownCase:
    """Everything that a run depends on. Rates are in Mbit/s; names are drawn for places by the seed."""

    seed: int
    known: str  # of KNOWN
    hosts: int
    switches: int
    size_mb: float
    edge: float
    between: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownAnswer:
    case: UnknownCase
    last_s: float  # until the last host has the file
    ratio: float  # over size / narrowest link
    copies: float  # of the file over the busiest direction between switches
    plans: int
    took_s: float  # of computing; differs from run to run


def run(case: UnknownCase) -> UnknownAnswer:
    """Run one case."""
    began, size_bytes = time.process_time(), int(case.size_mb * 1e6)
    names = [f"pc-{number}" for number in range(1, case.hosts + 1)]
    mixed = [str(name) for name in stream(case.seed, "places").permutation(names)]
    at = {name: f"switch-{place * case.switches // case.hosts + 1}" for place, name in enumerate(mixed)}
    links: dict[str, HostLink | None] = {
        name: HostLink(_SUBNET, "", case.edge * _MBIT, has_master=True) for name in names
    }
    truth = _truth(case, at | {MASTER: "switch-1"})
    file = read_network(_written(case, at), "network.toml") if case.known == KNOWN[0] else None
    world = UnknownNetwork(truth, links, size_bytes, case.seed, file=file, learns=case.known == KNOWN[1])
    last_s = max(world.run().values())
    ideal_s = size_bytes / (min(case.edge, case.between) * _MBIT)
    most = max(load for way, load in world.carried.items() if truth.nodes[way // 2].is_switch)
    return UnknownAnswer(
        case=case,
        last_s=last_s,
        ratio=last_s / ideal_s,
        copies=most / size_bytes,
        plans=len(world.plans),
        took_s=time.process_time() - began,
    )


def _truth(case: UnknownCase, at: dict[str, str]) -> Network:
    edge, between = case.edge * _MBIT, case.between * _MBIT
    nodes = [NetworkNode("core", None, is_switch=True)]
    nodes += [NetworkNode(name, "core", between, between, is_switch=True) for name in sorted({*at.values()})]
    return Network([*nodes, *(NetworkNode(name, switch, edge, edge) for name, switch in at.items())])


def _written(case: UnknownCase, at: dict[str, str]) -> str:
    """Return what an operator would write down."""
    text = "[switches.core]\n"
    for switch in sorted({*at.values()}):
        hosts = [name for name in at if at[name] == switch] + [MASTER] * (switch == "switch-1")
        text += f'[switches.{switch}]\nabove = "core"\ncapacity = "{case.between:g} Mbit/s"\n'
        text += f'hosts = {json.dumps(hosts)}\nedge = "{case.edge:g} Mbit/s"\n'
    return text


def picture(answers: Sequence[UnknownAnswer]) -> Table:
    """Return a table of the results for each degree of knowledge."""
    table = Table(
        "the network is", "until the last file", "over the ideal", "the worst", "copies over a cable", "plans"
    )
    for known in KNOWN:
        mine = [one for one in answers if one.case.known == known]
        table.add_row(
            known,
            f"{_mean([one.last_s for one in mine])} s",
            _mean([one.ratio for one in mine]),
            f"{max(one.ratio for one in mine):.2f}",
            _mean([one.copies for one in mine]),
            f"{fmean(one.plans for one in mine):.0f}",
        )
    return table


def _mean(values: Sequence[float]) -> str:
    found = estimate(values)
    return f"{found.mean:.2f} ±{plain(found.half_width)}"
