"""The network that is assumed until something is known of it, and the operator's file over it."""

from __future__ import annotations

from dataclasses import replace

from loopline_master.core.wings.transfers.assumed_network import assumed_network
from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand, PlanRequest
from loopline_master.core.wings.transfers.transfer_planner import plan
from loopline_master.transfers.known_network import known_network
from loopline_master.transfers.network_file import read_network
from loopline_master.transfers.solver import solve
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import KnownBy

LINKS = {
    "b": HostLink("10.1.0.0/24", "10.1.0.1", 125e6),
    "a": HostLink("10.1.0.0/24", "10.1.0.1", 12.5e6),
    "c": HostLink("10.2.0.0/24", "", 125e6, has_master=True),
    "d": HostLink("10.1.0.0/24", "10.1.0.254"),
}


def test_one_switch_for_each_subnet_and_gateway_on_links_of_the_cards_speed() -> None:
    network = assumed_network(LINKS)
    assert network.nodes == (
        NetworkNode("network", None, is_switch=True),
        NetworkNode("10.1.0.0/24 via 10.1.0.1", "network", 125e6, 125e6, is_switch=True),
        NetworkNode("10.1.0.0/24 via 10.1.0.254", "network", 125e6, 125e6, is_switch=True),
        NetworkNode("10.2.0.0/24", "network", 125e6, 125e6, is_switch=True),
        NetworkNode("master", "10.2.0.0/24", 125e6, 125e6),
        NetworkNode("a", "10.1.0.0/24 via 10.1.0.1", 12.5e6, 12.5e6),
        NetworkNode("b", "10.1.0.0/24 via 10.1.0.1", 125e6, 125e6),
        NetworkNode("c", "10.2.0.0/24", 125e6, 125e6),
        NetworkNode("d", "10.1.0.0/24 via 10.1.0.254", 125e6, 125e6),  # of unknown speed
    )
    assert assumed_network(dict(reversed(LINKS.items()))).nodes == network.nodes


def test_workers_without_facts_and_a_remote_master_are_at_the_root() -> None:
    found = {node.name: node.parent for node in assumed_network({"old": None}).nodes}
    assert found == {"network": None, "master": "network", "old": "network"}
    far = assumed_network({"c": replace(LINKS["c"], has_master=False)})
    assert far.nodes[far.number["master"]].parent == "network"


def test_a_plan_can_be_made_on_it_and_the_slow_card_does_not_slow_down_the_others() -> None:
    """It waits until others have the file: the sum over all receivers is the greatest so."""
    request = PlanRequest(assumed_network(LINKS), {"f": ("c",)}, tuple(Demand("f", host) for host in "abd"))
    found = {pipeline.hosts: pipeline.rate for pipeline in plan(request, solve).pipelines}
    assert found == {("d", "a"): 0.0, ("c", "b", "d"): 125e6}


def test_operators_file_overrides_assumptions() -> None:
    file = read_network(
        """
        [switches.core]
        hosts = ["master"]
        edge = "10 Gbit/s"
        [switches.lab]
        above = "core"
        capacity = "1 Gbit/s"
        hosts = ["a", "b"]
        edge = "80 Mbit/s"
        """
    )
    known = known_network(file, LINKS | {"master": LINKS["a"]})  # a worker of the master's name has no place in it
    found = {node.name: (node.parent, node.up) for node in known.network.nodes}
    assert found == {
        "core": (None, 0.0),
        "lab": ("core", 125e6),
        "master": ("core", 1.25e9),
        "a": ("lab", 1e7),
        "b": ("lab", 1e7),
        "c": ("core", 125e6),
        "d": ("core", 125e6),
    }
    assumed = {name for name, source in known.known_by.items() if source is KnownBy.ASSUMED}
    assert assumed == {"c", "d"}
    assert set(known_network(None, LINKS).known_by.values()) == {KnownBy.ASSUMED}
