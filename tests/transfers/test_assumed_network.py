"""The network that is assumed until something is known of it."""

from __future__ import annotations

from loopline_master.core.transfers.assumed_network import HostLink, assumed_network
from loopline_master.core.transfers.network import NetworkNode
from loopline_master.core.transfers.pipeline import Demand, PlanRequest
from loopline_master.core.transfers.transfer_planner import plan
from loopline_master.transfers.solver import solve

LINKS = {
    "b": HostLink("10.1.0.0/24", "10.1.0.1", 125e6),
    "a": HostLink("10.1.0.0/24", "10.1.0.1", 12.5e6),
    "c": HostLink("10.2.0.0/24", "", 125e6),
    "d": HostLink("10.1.0.0/24", "10.1.0.254", 125e6),
}


def test_one_switch_for_each_subnet_and_gateway_on_links_of_the_cards_speed() -> None:
    network = assumed_network(LINKS)
    assert network.nodes == (
        NetworkNode("network", None, is_switch=True),
        NetworkNode("10.1.0.0/24 via 10.1.0.1", "network", 125e6, 125e6, is_switch=True),
        NetworkNode("10.1.0.0/24 via 10.1.0.254", "network", 125e6, 125e6, is_switch=True),
        NetworkNode("10.2.0.0/24", "network", 125e6, 125e6, is_switch=True),
        NetworkNode("a", "10.1.0.0/24 via 10.1.0.1", 12.5e6, 12.5e6),
        NetworkNode("b", "10.1.0.0/24 via 10.1.0.1", 125e6, 125e6),
        NetworkNode("c", "10.2.0.0/24", 125e6, 125e6),
        NetworkNode("d", "10.1.0.0/24 via 10.1.0.254", 125e6, 125e6),
    )
    assert assumed_network(dict(reversed(LINKS.items()))).nodes == network.nodes


def test_a_plan_can_be_made_on_it_and_the_slow_card_does_not_slow_down_the_others() -> None:
    """It waits until others have the file: the sum over all receivers is the greatest so."""
    request = PlanRequest(assumed_network(LINKS), {"f": ("c",)}, tuple(Demand("f", host) for host in "abd"))
    found = {pipeline.hosts: pipeline.rate for pipeline in plan(request, solve).pipelines}
    assert found == {("c", "a"): 0.0, ("c", "b", "d"): 125e6}
