"""What transfers show of the network: the search against all choices, the truth where flows show it, and probes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

import pytest

from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_network
from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.flow_sample import FlowSample, Pair, Switches
from loopline_master.core.wings.transfers.measured_network import MeasuredNetwork, measured_network
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.probe_order import next_probes
from loopline_master.core.wings.transfers.programme import programme
from loopline_shared.protocol.host_link import HostLink
from tests.instructions import counted


def network(hosts: dict[str, tuple[str, float]], switches: dict[str, float]) -> Network:
    """Hosts with their switch and rate; switches with the rate of their link to the root."""
    nodes = [NetworkNode("root", None, is_switch=True)]
    nodes += [NetworkNode(name, "root", rate, rate, is_switch=True) for name, rate in switches.items()]
    return Network(nodes + [NetworkNode(name, at, rate, rate) for name, (at, rate) in hosts.items()])


def rates(found: Network, pairs: Sequence[Pair], noise: random.Random) -> dict[Pair, float]:
    """What TCP gives to flows that run together, nearly: max-min fair rates, and up to 7 % less."""
    uses = [found.use([found.number[name] for name in pair]) for pair in pairs]
    fair = fill(programme(found, uses, [1] * len(pairs), [0.0] * len(pairs)))
    return {pair: rate * noise.uniform(0.93, 1.0) for pair, rate in zip(pairs, fair, strict=True)}


def groups(switches: Switches) -> set[frozenset[str]]:
    return {frozenset(host for host in switches if switches[host] == name) for name in switches.values()}


def trains(at: Mapping[str, str], pairs: Sequence[Pair], noise: random.Random) -> FlowSample:
    """Return the rates of first pieces: 100 within a switch, 25 between two; up to a third less, as they vary."""
    rates = {
        (one, other): (100.0 if at[one] == at[other] else 25.0) * noise.uniform(0.67, 1.0) for one, other in pairs
    }
    return FlowSample(0.0, rates, frozenset(rates), in_turn=True, is_idle=True)


@pytest.mark.parametrize("seed", range(20))
def test_first_pieces_along_one_line_show_both_sides_of_a_cable(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"h{number:02}" for number in range(chance.randrange(4, 30))]
    at = {name: chance.choice("AB") for name in names} | {MASTER: "A", names[0]: "A"}
    line = [MASTER, *names]
    sample = trains(at, list(pairwise(line)), chance)
    found = measured_network([sample], dict.fromkeys(at, "lab"))
    crossing = sum(at[one] != at[other] for one, other in pairwise(line))
    assert found.seen == set(at)
    if min(sum(at[name] == side for name in at) for side in "AB") > 1 and crossing:
        assert groups(found.switch_of) == {frozenset(name for name in at if at[name] == side) for side in "AB"}
        assert all(25.0 <= rate <= 50.0 for rate in found.switches.values())


@pytest.mark.parametrize("seed", range(20))
def test_pairs_of_all_hosts_show_every_switch(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"h{number:02}" for number in range(chance.randrange(4, 14))]
    at = {name: chance.choice("ABCD") for name in names}
    pairs = [(one, other) for one in names for other in names if one < other]
    found = measured_network([trains(at, chance.sample(pairs, len(pairs)), chance)], dict.fromkeys(at, "lab"))
    alone = {name for name in at if sum(at[name] == side for side in at.values()) == 1}
    if any(at[one] == at[other] for one, other in pairs):
        truth = groups({name: switch for name, switch in at.items() if name not in alone})
        assert groups({name: switch for name, switch in found.switch_of.items() if name not in alone}) == truth
        assert found.slow == (alone if len(set(at.values())) > 1 else set()), "one that is alone is a slow host"


@pytest.mark.parametrize("seed", range(40))
def test_hosts_that_are_apart_are_put_at_as_few_switches_as_possible(seed: int) -> None:
    """Beside an enumeration of all ways; every pair here is apart, or was not tried."""
    chance = random.Random(seed)
    names = [f"h{number}" for number in range(chance.randrange(3, 7))]
    fast = {(f"x{name}", f"y{name}"): 100.0 for name in names}
    apart = [(one, other) for one in names for other in names if one < other and chance.random() < 0.5]
    hops = {(f"x{one}", f"x{other}"): 20.0 for one, other in apart} | fast
    hosts = {name for pair in hops for name in pair}
    sample = FlowSample(0.0, hops, frozenset(hops), in_turn=True, is_idle=True)
    found = measured_network([sample], dict.fromkeys(hosts, "lab")).switch_of
    assert all(found[one] == found[other] for one, other in fast)
    assert all(found[one] != found[other] for one, other in hops.keys() - fast.keys())
    ways = product(range(len(names)), repeat=len(names))
    fits = (way for way in ways if all(way[names.index(one)] != way[names.index(other)] for one, other in apart))
    assert len(set(found.values())) == min(len(set(way)) for way in fits)


def test_first_pieces_are_compared_with_one_another() -> None:
    """The master's were slow, as it had much to do; faster flows than these come later."""
    at = {MASTER: "A", "a": "A", "b": "B", "c": "A"}
    rates = {(MASTER, "a"): 50.0, ("a", "b"): 25.0, ("b", "c"): 25.0}
    first = FlowSample(0.0, rates, frozenset(rates), in_turn=True, is_idle=True)
    later = FlowSample(1.0, {("a", "c"): 100.0}, frozenset([("a", "c")]))
    found = measured_network([first, later], dict.fromkeys(at, "lab"))
    assert found.slow == {"b"}
    assert set(found.switch_of.values()) == {"lab"}


def test_first_pieces_of_hosts_that_left_show_nothing() -> None:
    sample = trains({MASTER: "A", "gone": "A"}, [(MASTER, "gone")], random.Random(1))
    here = {MASTER: "lab", "new": "lab"}
    assert measured_network([sample], here) == MeasuredNetwork(here, {}, {})


def test_flows_across_a_cable_replace_the_higher_rate_assumed_from_first_pieces() -> None:
    at = {"a": "A", "b": "A", "c": "B", "d": "B"}
    line = [("a", "b"), ("b", "c"), ("c", "d")]
    first = trains(at, line, random.Random(1))
    crossing = FlowSample(1.0, {("a", "b"): 25.0, ("b", "c"): 25.0}, frozenset([("b", "c")]))
    assumed = dict.fromkeys(at, "lab")
    assert set(measured_network([first], assumed).switches.values()) == {2 * first.rates["b", "c"]}
    assert set(measured_network([first, *[crossing] * 3], assumed).switches.values()) == {25.0}


def test_slow_flows_of_one_pair_do_not_outweigh_its_first_piece() -> None:
    """A computer was busy. If as many pairs contradict their first pieces as confirm them, they share a link."""
    at, line = dict.fromkeys("abcdef", "A"), list(pairwise("abcdef"))
    first = trains(at, line, random.Random(1))
    for slow, switches in ((line[:1], 1), (line[::2], 2)):
        rates = {pair: 20.0 if pair in slow else 90.0 for pair in line}
        found = measured_network([first, *[FlowSample(1.0, rates, frozenset(rates))] * 3], dict.fromkeys(at, "lab"))
        assert len(set(found.switch_of.values())) == switches


def test_several_fast_flows_outweigh_a_slow_first_piece() -> None:
    """The receiver was busy when its first piece came."""
    at, line = dict.fromkeys("abcde", "A"), list(pairwise("abcde"))
    rates = {pair: 25.0 if pair == ("b", "c") else 100.0 for pair in line}
    first = FlowSample(0.0, rates, frozenset(rates), in_turn=True, is_idle=True)
    fast = FlowSample(1.0, dict.fromkeys(line, 95.0), frozenset(line))
    for count, switches in ((1, 2), (3, 1), (20, 1)):
        found = measured_network([first, *[fast] * count], dict.fromkeys(at, "lab"))
        assert len(set(found.switch_of.values())) == switches, count


def test_first_pieces_on_a_busy_network_show_nothing_alone() -> None:
    """No capacity is known to compare them with, and a worker may report any rate."""
    at, pairs = dict.fromkeys("abc", "A"), frozenset([("a", "b"), ("b", "c")])
    busy = FlowSample(0.0, dict.fromkeys(pairs, 0.1), pairs, in_turn=True)
    assert measured_network([busy], at) == MeasuredNetwork(at, {}, {}, seen=frozenset("abc"))


def test_one_slow_first_piece_on_a_busy_network_does_not_part_hosts() -> None:
    at = dict.fromkeys("abcdef", "A")
    first = trains(at, [("a", "b"), ("b", "c"), ("c", "d"), ("e", "f")], random.Random(1))
    for slow, switches in (({("a", "c"): 20.0}, 1), ({("a", "c"): 20.0, ("b", "e"): 20.0}, 2)):
        later = FlowSample(1.0, slow, frozenset(slow), in_turn=True)
        found = measured_network([first, later], dict.fromkeys(at, "lab"))
        assert len(set(found.switch_of.values())) == switches


def test_slow_flow_does_not_part_hosts_whose_first_piece_was_fast() -> None:
    at = {"a": "A", "b": "A", "c": "A"}
    first = trains(at, [("a", "b"), ("b", "c")], random.Random(1))
    slow = FlowSample(1.0, {("a", "b"): 20.0, ("b", "c"): 90.0}, frozenset([("a", "b"), ("b", "c")]))
    for count in (1, 3, 10):
        found = measured_network([first, *[slow] * count], dict.fromkeys(at, "lab"))
        assert (set(found.switch_of.values()), found.slow) == ({"lab"}, set()), count


def lab(hosts: int, edge: float, between: float, more: dict[str, str] | None = None) -> tuple[Network, list[str]]:
    names = [f"h{number:02}" for number in range(hosts)]
    at_switch = {name: "A" if number < hosts // 2 else "B" for number, name in enumerate(names)} | (more or {})
    return network({name: (at, edge) for name, at in at_switch.items()}, {"A": between, "B": between}), names


def shown_by(found: Network, sets: Sequence[Sequence[Pair]]) -> MeasuredNetwork:
    noise, names = random.Random(1), [node.name for node in found.nodes if not node.is_switch]
    samples = [
        FlowSample(float(at), rates(found, one, noise), frozenset(one), is_idle=True) for at, one in enumerate(sets)
    ]
    return measured_network(samples, dict.fromkeys(names, "lab"))


def test_flows_that_are_slow_only_together_show_a_link_that_they_share() -> None:
    """Each flow alone uses its whole card. The pairs that slow each other down reveal the two sides."""
    found, names = lab(8, 100.0, 130.0)
    alone = [[(names[0], name)] for name in names[1:]] + [[(name, names[0])] for name in names[1:]]
    across = list(zip(names, names[4:], strict=False))
    within = [(names[0], names[1]), (names[2], names[3]), (names[4], names[5]), (names[6], names[7])]
    only_alone = shown_by(found, alone)
    assert set(only_alone.switch_of.values()) == {"lab"}
    measured = shown_by(found, [*alone, across, within])
    assert groups(measured.switch_of) == {frozenset(names[:4]), frozenset(names[4:])}
    assert set(measured.switch_of.values()) == {"lab", "lab #2"}
    assert measured.switch_of[names[0]] == "lab"
    assert measured.switches == pytest.approx({"lab": 130.0, "lab #2": 130.0}, rel=0.1)
    separate = network(dict.fromkeys(names, ("A", 100.0)), {"A": 1.0})  # the same flows share nothing
    assert set(shown_by(separate, [*alone, across, within]).switch_of.values()) == {"lab"}


def test_a_host_is_slow_only_if_it_is_so_with_two_others() -> None:
    found = network({"a": ("A", 100.0), "b": ("A", 100.0), "c": ("A", 10.0)}, {"A": 1.0})
    assert "c" not in shown_by(found, [[("a", "c")]]).hosts
    assert shown_by(found, [[("a", "c")], [("b", "c")]]).hosts["c"] == pytest.approx(10.0, rel=0.1)


def test_flows_that_something_else_holds_back_show_nothing() -> None:
    found, names = lab(6, 100.0, 25.0)
    samples = [
        FlowSample(0.0, rates(found, [pair], random.Random(1)), frozenset())
        for pair in ((names[0], names[1]), (names[0], names[4]), (names[4], names[5]))
    ]
    assert measured_network(samples, dict.fromkeys(names, "lab")) == MeasuredNetwork(
        dict.fromkeys(names, "lab"), {}, {}
    )


@pytest.mark.parametrize(("edge", "between"), [(100.0, 25.0), (100.0, 100.0), (100.0, 250.0)])
@pytest.mark.parametrize("side", ["A", "B"])
def test_probes_of_an_idle_grid_find_the_two_sides_of_a_narrow_cable(edge: float, between: float, side: str) -> None:
    found, names = lab(12, edge, between, more={MASTER: side})
    names = [name for pair in zip(names, names[6:], strict=False) for name in pair]  # as addresses may lie
    done: dict[tuple[Pair, ...], dict[Pair, float]] = {}
    noise = random.Random(2)
    while pairs := next_probes(names, done):
        assert len({name for pair in pairs for name in pair}) == 2 * len(pairs)
        done[pairs] = rates(found, pairs, noise)
    assert len(done) <= 2 * len(names)
    samples = [FlowSample(float(at), found, frozenset(found), is_idle=True) for at, found in enumerate(done.values())]
    measured = measured_network(samples, dict.fromkeys([*names, MASTER], "lab"))
    ordered, switch_of = sorted(names), dict(measured.switch_of)
    if between < edge:
        assert switch_of[MASTER] == switch_of[names["AB".index(side)]]
    del switch_of[MASTER]
    assert groups(switch_of) == {frozenset(ordered[:6]), frozenset(ordered[6:])}
    assert measured.switches["lab"] == pytest.approx(between, rel=0.1)


def test_hosts_that_are_slow_from_the_first_are_probed_from_one_another_next() -> None:
    done = {(("a", other),): {("a", other): rate} for other, rate in zip("bcd", (100.0, 50.0, 50.0), strict=True)}
    assert next_probes("abcd", done) == (("c", "d"),)
    near = {pairs: dict.fromkeys(pairs, 90.0) for pairs in done}
    assert next_probes("abcd", near) == ((MASTER, "a"),)


def test_probes_that_fail_end_the_measuring_all_the_same() -> None:
    done: dict[tuple[Pair, ...], dict[Pair, float]] = {}
    while pairs := next_probes(["a", "b", "c", "d"], done):
        done[pairs] = {}
    assert len(done) == 7
    assert next_probes(["a", "b"], {(("a", "b"),): {}, ((MASTER, "a"),): {}}) == ()
    assert next_probes([], {}) == next_probes(["a"], {}) == ()


def test_measurement_overrides_assumptions_and_applies_to_like_cards() -> None:
    links: dict[str, HostLink | None] = {
        name: HostLink("10.0.0.0/24", "", 1000.0, has_master=name == "a") for name in "abcd"
    }
    links["e"] = HostLink("10.0.0.0/24", "", 5000.0)
    at = {"a": "10.0.0.0/24", "b": "10.0.0.0/24", "c": "10.0.0.0/24 #2", "d": "10.0.0.0/24 #2", "gone": "x"}
    found = assumed_network(links, MeasuredNetwork(at, {"a": 90.0, "c": 80.0}, {"10.0.0.0/24 #2": 25.0}))
    nodes = {node.name: (node.parent, node.up, node.down) for node in found.nodes}
    assert nodes == {
        "network": (None, 0.0, 0.0),
        "10.0.0.0/24": ("network", 5000.0, 5000.0),
        "10.0.0.0/24 #2": ("network", 25.0, 25.0),
        "master": ("10.0.0.0/24", 5000.0, 5000.0),
        "a": ("10.0.0.0/24", 90.0, 90.0),
        "b": ("10.0.0.0/24", 90.0, 90.0),
        "c": ("10.0.0.0/24 #2", 80.0, 80.0),
        "d": ("10.0.0.0/24 #2", 80.0, 80.0),
        "e": ("10.0.0.0/24", 5000.0, 5000.0),
    }


def line_by_name(at: dict[str, str], edge: float, between: float, seed: int) -> FlowSample:
    """Return a sample of one line of hosts by name at the rate that its links allow, as meters would report it."""
    found = network({name: (switch, edge) for name, switch in at.items()}, dict.fromkeys(at.values(), between))
    noise, line = random.Random(seed), [MASTER, *sorted(set(at) - {MASTER})]
    pairs = list(pairwise(line))
    use = found.use([found.number[name] for name in line])
    rate = min(found.limits[direction] / count for direction, count in use.items())
    full = {direction for direction, count in use.items() if count * rate > 0.95 * found.limits[direction]}
    ways = {pair: found.way(found.number[pair[0]], found.number[pair[1]]) for pair in pairs}
    free = frozenset(pair for pair in pairs if full & set(ways[pair]))
    swift = frozenset(
        pair for pair in pairs if all(found.limits[way] - use[way] * rate > 2 * rate for way in ways[pair])
    )
    rates = {pair: rate * noise.uniform(0.93, 1.0) for pair in pairs}
    return FlowSample(0.0, rates, free, swift)


@pytest.mark.parametrize("seed", range(8))
def test_one_line_across_a_narrow_cable_shows_the_two_sides_of_it(seed: int) -> None:
    """Names say nothing of the place: the line crosses the cable again and again. Once it has a fast flow as well."""
    chance = random.Random(seed)
    names = [f"h{number:02}" for number in range(12)]
    side = ["A"] * 6 + ["B"] * 6
    chance.shuffle(side)
    at = dict(zip(names, side, strict=True)) | {MASTER: side[-1]}  # both ways are crossed as often, and full
    samples = [line_by_name(at, 100.0, 25.0, seed)] * 2
    sides = {frozenset(name for name in at if at[name] == switch) for switch in "AB"}
    assert groups(measured_network(samples, dict.fromkeys(at, "lab")).switch_of) == sides


def test_the_two_sides_of_two_hundred_hosts_are_found_in_bounded_time() -> None:
    """The number of samples does not matter: 120 are kept, and each choice of switches is compared with all."""
    chance, names = random.Random(0), [f"h{number:03}" for number in range(200)]
    at = {name: chance.choice("AB") for name in names} | {MASTER: "A"}
    lines = [{name: at[name] for name in (MASTER, *chance.sample(names, 150))} for _ in range(100)]
    samples = [replace(line_by_name(line, 100.0, 25.0, number), at=number) for number, line in enumerate(lines)]

    found = measured_network(samples, dict.fromkeys(at, "lab")).switch_of
    assert groups(found) == {frozenset(name for name in at if at[name] == side) for side in "AB"}


def test_hosts_without_flows_do_not_multiply_the_time() -> None:
    """Instructions are counted: twice the hosts, about twice the time."""
    line = [f"h{number}" for number in range(8)]
    sample = trains({name: "AB"[number % 2] for number, name in enumerate(line)}, [*pairwise(line)], random.Random(1))

    def instructions(hosts: int) -> int:
        assumed = dict.fromkeys([*line, *(f"idle{number}" for number in range(hosts))], "lab")
        return counted(lambda: measured_network([sample], assumed))

    assert instructions(200) < 3 * instructions(100)


def test_more_samples_take_proportionally_more_time() -> None:
    """Each sample is of hosts of its own."""

    def instructions(samples: int) -> int:
        pairs = [(f"a{number}", f"b{number}") for number in range(samples)]
        flows = [FlowSample(0.0, {pair: 1e8}, frozenset([pair])) for pair in pairs]
        assumed = dict.fromkeys([name for pair in pairs for name in pair], "lab")
        return counted(lambda: measured_network(flows, assumed))

    assert instructions(100) < 3 * instructions(50)


def test_slow_flows_of_all_hosts_alike_are_a_cable_and_no_host_is_said_to_be_slow() -> None:
    """The first of a line has the file at the speed of its card, so the others' cards are no reason either."""
    at = {f"h{number:02}": "AB"[number % 2] for number in range(12)} | {MASTER: "A"}
    sample = line_by_name(at, 100.0, 25.0, 1)
    fast = FlowSample(0.0, sample.rates | {(MASTER, "h00"): 99.0}, sample.free | {(MASTER, "h00")}, sample.swift)
    measured = measured_network([fast, fast], dict.fromkeys(at, "lab"))
    assert groups(measured.switch_of) == {frozenset(name for name in at if at[name] == side) for side in "AB"}
    assert not measured.hosts
    assert measured.switches == pytest.approx({"lab": 25.0, "lab #2": 25.0}, rel=0.1)


def test_a_few_hosts_that_are_slow_are_that_and_no_measure_for_the_others() -> None:
    names = ["a", "b", "c", "d", "slow"]
    found = network({name: ("A", 10.0 if name == "slow" else 100.0) for name in names}, {"A": 1.0})
    sets = [[("a", "b")], [("b", "c")], [("a", "slow")], [("b", "slow")], [("c", "slow")]]
    measured = shown_by(found, sets)
    assert set(measured.switch_of.values()) == {"lab"}
    assert (measured.hosts["slow"], measured.slow) == (pytest.approx(10.0, rel=0.1), {"slow"})
    links: dict[str, HostLink | None] = {name: HostLink("10.0.0.0/24", "", 100.0) for name in names}
    nodes = {node.name: node.up for node in assumed_network(links, replace(measured, switch_of={})).nodes}
    assert nodes["d"] > 90.0


def test_a_card_that_says_that_it_is_slow_needs_no_other_reason() -> None:
    found = network({name: ("A", 10.0 if name in "xyz" else 100.0) for name in "abxyz"}, {"A": 1.0})
    samples = [
        FlowSample(float(at), rates(found, [pair], random.Random(at)), frozenset([pair]))
        for at, pair in enumerate([("a", "b"), ("a", "x"), ("x", "y"), ("y", "z"), ("z", "x")])
    ]
    cards = {"a": 100.0, "b": 100.0, "x": 10.0, "y": 10.0, "z": 10.0}
    assert measured_network(samples, dict.fromkeys("abxyz", "lab"), cards).slow == frozenset()
