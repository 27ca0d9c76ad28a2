"""Links that carry less than is known of them: found from free flows, and given up when they recover."""

from __future__ import annotations

import pytest

from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.peers.slow_links import SlowLinks
from loopline_shared.rest.bodies.network import FileFlow

NODES = {
    node.name: node
    for node in (
        NetworkNode("core", None, is_switch=True),
        NetworkNode("left", "core", 10.0, 10.0, is_switch=True),
        NetworkNode("right", "core", 10.0, 10.0, is_switch=True),
        NetworkNode("ant", "left", 40.0, 40.0),
        NetworkNode("cat", "right", 40.0, 40.0),
    )
}
NETWORK = Network([*NODES.values()])


def look(links: SlowLinks, now: float, rate: float, *, is_free: bool = True, assumed: tuple[int, ...] = ()) -> None:
    """One flow from ant to cat."""
    flow = FileFlow(
        sha256="a" * 64, source="ant", receiver="cat", rate_bytes_s=rate, have_bytes=1, size_bytes=2, is_free=is_free
    )
    way = NETWORK.way(NETWORK.number["ant"], NETWORK.number["cat"])
    links.observe(now, NETWORK, dict.fromkeys(way, rate), [flow], assumed)


def changed(links: SlowLinks) -> dict[str, tuple[float, float]]:
    return {name: (node.up, node.down) for name, node in links.limited(NODES).items() if node != NODES[name]}


def test_the_fullest_link_of_a_free_flow_carries_no_more_than_it() -> None:
    links = SlowLinks()
    look(links, 1.0, 9.0)
    assert not changed(links), "that is full"
    look(links, 2.0, 5.0)
    assert changed(links) in ({"left": (7.5, 10.0)}, {"right": (10.0, 7.5)}), "with room to show that it carries more"


@pytest.mark.parametrize("why", ["held back", "assumed"])
def test_a_flow_that_may_be_slow_for_another_reason_shows_nothing(why: str) -> None:
    links = SlowLinks()
    look(links, 1.0, 5.0, is_free=why != "held back", assumed=(NETWORK.number["cat"],) if why == "assumed" else ())
    assert not changed(links)


def test_a_link_that_carries_more_again_is_believed_at_once_and_any_other_after_a_while() -> None:
    links = SlowLinks()
    look(links, 1.0, 5.0)
    look(links, 2.0, 7.5, is_free=False)
    assert not changed(links), "it has used all its room"
    look(links, 3.0, 5.0)
    links.observe(34.0, NETWORK, {}, [])
    assert not changed(links)
