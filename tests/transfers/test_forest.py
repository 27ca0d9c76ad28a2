"""Sources and lines on random trees, beside what trying everything finds (Takahashi et al., section 3.2)."""

from __future__ import annotations

import random

import pytest

from loopline_master.core.wings.transfers.forest import pipelines
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from tests.transfers import oracles

Lines = list[tuple[str, ...]]


def lines_of(network: Network, holders: list[str], receivers: list[str]) -> Lines:
    numbers = [{network.number[name] for name in names} for names in (holders, receivers)]
    found = pipelines(network, network.limits, numbers[0], numbers[1])
    return [tuple(network.nodes[place].name for place in line) for line in found]


def drawn(seed: int, hosts: int, switches: int, *, symmetric: bool) -> tuple[Network, list[str], list[str]]:
    draw = random.Random(seed)
    network = oracles.random_network(draw, hosts, switches, symmetric=symmetric)
    names = [node.name for node in network.nodes if not node.is_switch]
    chosen = draw.sample(names, draw.randint(2, hosts))
    sources = draw.randint(1, min(4, len(chosen) - 1))
    return network, chosen[:sources], chosen[sources:]


def test_on_random_trees_each_receiver_is_at_its_widest_path_and_no_link_is_used_twice() -> None:
    """A tenth of the trees have links of unlike directions."""
    for seed in range(3000):
        network, holders, receivers = drawn(seed, 2 + seed % 12, 1 + seed % 7, symmetric=seed % 10 > 0)
        lines = lines_of(network, holders, receivers)
        assert sorted(name for line in lines for name in line[1:]) == sorted(receivers), seed
        assert all(line[0] in holders for line in lines)
        assert len({line[0] for line in lines}) == len(lines), "one line for each source"
        assert max(oracles.used(network, lines).values()) == 1, seed
        for line in lines:
            for receiver in line[1:]:
                best = oracles.widest(network, holders, receiver)
                assert oracles.narrowest(network, line[0], receiver, holders) == best, seed


def test_one_source_in_each_tree() -> None:
    """The trees of different sources have no node in common, switches included."""
    for seed in range(300):
        network, holders, receivers = drawn(seed, 10, 6, symmetric=True)
        seen: set[str] = set()
        for line in lines_of(network, holders, receivers):
            met = {name for step in oracles.used(network, [line]) for name in step}
            assert not seen & met, seed
            seen |= met


def test_no_choice_of_sources_and_lines_is_wider() -> None:
    for seed in range(150):
        draw = random.Random(seed)
        network = oracles.random_network(draw, 6, 1 + seed % 4)
        names = sorted(node.name for node in network.nodes if not node.is_switch)
        draw.shuffle(names)
        holders, receivers = names[: 1 + seed % 2], names[2 : 3 + seed % 4]
        lines = lines_of(network, holders, receivers)
        often = oracles.used(network, lines)
        ours = min(oracles.capacity(network, step) / count for step, count in often.items())
        assert ours == oracles.best_bottleneck(network, holders, receivers), seed


def test_a_line_visits_one_switch_after_the_other() -> None:
    """Two switches with three hosts each: hosts by their numbers would cross the uplink three times each way."""
    switches = [NetworkNode("root", None, is_switch=True), NetworkNode("other", "root", 1.0, 1.0, is_switch=True)]
    hosts = [NetworkNode(f"h{n}", ("root", "other")[n % 2], 10.0, 10.0) for n in range(6)]
    network = Network([*switches, *hosts])
    (line,) = lines_of(network, ["h0"], [f"h{n}" for n in range(1, 6)])
    assert oracles.used(network, [line])[("root", "other")] == 1
    assert oracles.used(network, [("h0", "h1", "h2", "h3", "h4", "h5")])[("root", "other")] == 3


def test_unreachable_host_is_in_no_line() -> None:
    network = Network(
        [
            NetworkNode("root", None, is_switch=True),
            NetworkNode("far", "root", 0.0, 0.0, is_switch=True),
            *(NetworkNode(name, "root", 1.0, 1.0) for name in "ab"),
            NetworkNode("c", "far", 1.0, 1.0),
        ]
    )
    assert lines_of(network, ["a"], ["b", "c"]) == [("a", "b")]


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ([NetworkNode("a", None)], "root, 'a', is not a switch"),
        ([NetworkNode("a", None, is_switch=True)] * 2, "two nodes are called 'a'"),
        ([NetworkNode(name, None, is_switch=True) for name in "ab"], "one root, not 2"),
        ([NetworkNode("s", None, is_switch=True), NetworkNode("a", "t")], "linked to 't', which is not there"),
        (
            [NetworkNode("s", None, is_switch=True), NetworkNode("a", "s"), NetworkNode("b", "a")],
            "linked to 'a', which is not a switch",
        ),
        ([NetworkNode("s", "t", is_switch=True), NetworkNode("t", "s", is_switch=True)], "round in a circle"),
        ([NetworkNode("s", None, is_switch=True), NetworkNode("a", "s", -1.0)], "below zero"),
    ],
)
def test_nodes_that_are_no_tree_are_refused(nodes: list[NetworkNode], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Network(nodes)
