"""``simulate transfer``: small cases by hand, invariants of every run, and the command."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand
from loopline_simulator.__main__ import main
from loopline_simulator.drawing import KINDS
from loopline_simulator.papers.data_transfer.bounds import least_makespan, most_throughput
from loopline_simulator.papers.data_transfer.fluid_world import FluidWorld
from loopline_simulator.papers.data_transfer.strategies import STRATEGIES
from loopline_simulator.papers.data_transfer.transfer_scenario import (
    MASTER,
    Arrival,
    LinkChange,
    Situation,
    TransferScenario,
)
from loopline_simulator.papers.data_transfer.transfer_trial import TransferCase, observe, rates, run

SMALL = TransferScenario(hosts=10, switches=4, files=4, wants=2, size_mb=100.0)
CHANGING = TransferScenario(hosts=10, switches=4, files=4, wants=2, size_mb=100.0, spread_s=20.0, change_every_s=5.0)
COMMAND = ["transfer", "--hosts", "8", "--switches", "3", "--files", "3", "--size-mb", "50", "--seeds", "2"]


def star(hosts: int, *, change: LinkChange | None = None, apart_s: float = 0.0) -> Situation:
    """One file of 100 bytes at the master, hosts that want it, links of 10 bytes per second."""
    names = [f"host-{number}" for number in range(hosts)]
    nodes = [NetworkNode("root", None, is_switch=True)]
    nodes += [NetworkNode(name, "root", 10.0, 10.0) for name in (MASTER, *names)]
    arrivals = tuple(Arrival(apart_s * number, Demand("f", name)) for number, name in enumerate(names))
    return Situation(tuple(nodes), {"f": 100.0}, {"f": (MASTER,)}, arrivals, (change,) if change else ())


@pytest.mark.parametrize(
    ("strategy", "takes"),
    [("planned", 10.0), ("planned-fair", 10.0), ("blind", 10.0), ("random-peers", 40.0), ("master-only", 40.0)],
)
def test_one_file_to_four_hosts(strategy: str, takes: float) -> None:
    """A line brings it to all in the time of one copy; four connections share the master's link."""
    world = FluidWorld(star(4), STRATEGIES[strategy](1))
    world.run()
    assert world.now == pytest.approx(takes, abs=0.2)
    assert least_makespan(world.situation) == 10.0


def test_a_link_that_changes_is_used_as_it_is() -> None:
    """50 bytes in 5 s, and the other 50 at half the rate; the bound knows that as well."""
    situation = star(2, change=LinkChange(5.0, MASTER, 0.5))
    world = FluidWorld(situation, STRATEGIES["planned"](1))
    world.run()
    assert world.now == pytest.approx(15.0, abs=0.4)
    assert least_makespan(situation) == 15.0


def test_later_demand_is_served_by_current_holders() -> None:
    world = FluidWorld(star(2, apart_s=10.5), STRATEGIES["planned"](1))
    world.run()
    assert world.took == {
        ("f", "host-0"): pytest.approx(10.0, abs=0.2),
        ("f", "host-1"): pytest.approx(10.0, abs=0.2),
    }


def test_most_throughput_by_hand() -> None:
    """Two files to one host share its link; a file to two hosts leaves the master's once."""
    network = Network(star(2).nodes)
    demands = [("f", "host-0"), ("g", "host-0"), ("f", "host-1")]
    assert most_throughput(network, {"f": (MASTER,), "g": (MASTER,)}, demands) == pytest.approx(20.0)
    assert most_throughput(network, {"f": (MASTER,)}, [("f", "host-0"), ("f", "host-1")]) == pytest.approx(20.0)


@pytest.mark.parametrize("scenario", [SMALL, CHANGING])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_run_overloads_a_link_or_beats_a_bound_and_each_host_receives_its_files_once(
    strategy: str, scenario: TransferScenario
) -> None:
    for seed in range(3):
        case = TransferCase(seed, strategy, scenario)
        world, meter = observe(case)
        for _, _, network, flows in meter.stretches:
            for way, rate in rates(network, flows).items():
                assert rate <= network.limits[way] * (1 + 1e-6)
        for node in world.situation.nodes:
            wanted = sum(world.situation.sizes[file] for file, host in world.took if host == node.name)
            if not node.is_switch:
                assert meter.carried.get((node.name, "down"), 0.0) == pytest.approx(wanted, abs=100.0)
        measures = run(case).measures
        assert measures.makespan_s >= measures.least_makespan_s * (1 - 1e-9)
        assert scenario is CHANGING or measures.first_mbs <= measures.most_mbs * (1 + 1e-6)


def test_plan_beats_strategies_that_do_not_know_the_network() -> None:
    def mean(strategy: str) -> float:
        return sum(run(TransferCase(seed, strategy, SMALL)).measures.mean_s for seed in range(6))

    planned = mean("planned")
    assert all(planned < mean(other) for other in STRATEGIES if other != "planned")


def test_unsatisfiable_demand_is_refused() -> None:
    situation = star(1)
    nodes = tuple(NetworkNode(node.name, node.parent, 0.0, 0.0, node.is_switch) for node in situation.nodes)
    cut = Situation(nodes, situation.sizes, situation.holders, situation.arrivals, ())
    with pytest.raises(RuntimeError, match="can never be met"):
        FluidWorld(cut, STRATEGIES["planned"](1), inf).run()


@pytest.mark.campaign
def test_the_same_bytes_on_any_number_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for processes in ("1", "2"):
        assert main([*COMMAND, "--json", "--processes", processes]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    runs = json.loads(printed[0])["runs"]
    assert {run["strategy"] for run in runs} == set(STRATEGIES)
    assert len(runs) == 2 * len(STRATEGIES)


def test_output_fits_into_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--assign", "--plans", "5", "10"]):
        assert main([*COMMAND, *words, "--processes", "1"]) == 0
        printed = capsys.readouterr().out
        assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
        assert "…" not in printed


def test_searches_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--assign", "--plans", "10", "--processes", "1", "--json"]) == 0
    values = {(one["seed"], one["search"]): one for one in json.loads(capsys.readouterr().out)["searches"]}
    for seed in (1, 2):
        first = values[seed, "local-first"]["value_mbs"]
        for search in ("annealing", "genetic"):
            assert values[seed, search]["value_mbs"] >= first
            assert values[seed, search]["plans"] <= 11


@pytest.mark.campaign
def test_pictures_are_of_the_same_bytes_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--strategies", "planned", "blind", "--processes", "1", "--pictures"]
    for folder in ("one", "two"):
        assert main([*COMMAND, *words, str(tmp_path / folder)]) == 0
    one, two = (sorted((tmp_path / folder).iterdir()) for folder in ("one", "two"))
    assert [file.name for file in one] == [
        f"transfer-{figure}.{kind}" for figure in ("links", "tree-blind", "tree-planned") for kind in KINDS
    ]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--strategies plannd", "there is no strategy 'plannd'"),
        ("--hosts 2 --copies 2", "every host has every file"),
        ("--size-mb 0", "> 0"),
        ("--spread -1", ">= 0"),
    ],
)
def test_bad_input_is_refused_plainly(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err
