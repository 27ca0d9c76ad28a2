"""The network in the REST API, and its way to the scheduler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers.flow_sample import FlowSample
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.live_network import LiveNetwork
from loopline_shared.errors import LooplineError
from loopline_shared.model import Load
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.protocol.transfers import Fetching, PeerReport
from loopline_shared.protocol.worker_link import PROTOCOL_VERSION, Hello, Report
from loopline_shared.rest.bodies import FileFlow
from tests.api.bench import FACTS, Bench, running_master, until

LINK = HostLink("10.1.0.0/24", "10.1.0.1", 125e6, has_master=True)
LINKED = replace(FACTS, link=LINK)


async def test_network_view_has_connected_workers_and_their_flows(tmp_path: Path) -> None:
    async with running_master(tmp_path, peers="on") as master, master.worker("ant", facts=LINKED):
        hello, far = Hello(PROTOCOL_VERSION, "bee", "boot", LINKED), master.parts[Exchange]
        fetching = Fetching("a" * 64, 2**30, 2**20, "ant", rate_bytes_s=5e6, is_free=True)
        async with master.worker("bee", facts=LINKED):
            report = Report(1, 1, (), (), Load(1), peers=PeerReport(7462, (fetching,), ()))
            far.heard(hello, 99, "10.1.0.2", report)
            view = await master.get("/network", "reader")
            assert [node["name"] for node in view["nodes"]] == [
                "network", "10.1.0.0/24 via 10.1.0.1", "ant", "bee", "master",
            ]  # fmt: skip
            ant, bee = view["nodes"][2:4]
            assert (ant["up"], ant["known_by"], ant["flowing_up"], ant["flowing_down"]) == (125e6, "assumed", 5e6, 0)
            assert (bee["flowing_up"], bee["flowing_down"]) == (0, 5e6)
            assert view["nodes"][1]["flowing_up"] == 0
            (flow,) = view["flows"]
            assert (flow["source"], flow["receiver"], flow["have_bytes"]) == ("ant", "bee", 2**20)
            nodes = master.parts[Scheduler].state.own(TransferMemory).transfers.nodes

            async def is_known() -> bool:
                return "bee" in nodes_of(master)

            await until(is_known)
            assert nodes_of(master)["bee"] == "10.1.0.0/24 via 10.1.0.1"
            assert nodes is not None
            far.left("bee", 99)
        # bee has left

        async def is_gone() -> bool:
            return "bee" not in nodes_of(master)

        await until(is_gone)


def nodes_of(master: Bench) -> dict[str, str | None]:
    return {
        name: node.parent for name, node in master.parts[Scheduler].state.own(TransferMemory).transfers.nodes.items()
    }


async def test_network_file_is_read_at_start_and_mistakes_are_reported(tmp_path: Path) -> None:
    (tmp_path / "network.toml").write_text('[switches.core]\nhosts = ["ant"]\nedge = "80 Mbit/s"\n')
    async with running_master(tmp_path, peers="on") as master, master.worker("ant", facts=LINKED):
        view = await master.get("/network")
        assert view["file"] == str(tmp_path / "network.toml")
        assert [(node["name"], node["up"], node["known_by"]) for node in view["nodes"]] == [
            ("core", 0, None), ("ant", 1e7, "file"), ("master", 125e6, "assumed"),
        ]  # fmt: skip
        refused = await master.ask("POST", "/network/measure")
        assert (refused.status, refused.body["code"]) == (409, "not_idle")
        assert "written down in a network.toml" in refused.body["detail"]
    other = tmp_path / "lab.toml"
    other.write_text('[switches.core]\nhosts = ["ant"]\nedge = "fast"\n')
    with pytest.raises(LooplineError, match=r"lab.toml, line 3: 'fast' is no capacity"):
        async with running_master(tmp_path, network_file=other):
            pass


async def test_only_admins_can_probe_and_only_between_carriers(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        assert (await master.ask("POST", "/network/measure", "user")).status == 403
        assert "peers = off" in (await master.ask("POST", "/network/measure")).body["detail"]
    async with running_master(tmp_path, peers="on") as master, master.worker("ant"):
        assert "fewer than two workers" in (await master.ask("POST", "/network/measure")).body["detail"]
        async with master.worker("bee") as bee:
            bee.load = replace(bee.load, in_use=True)
            await bee.report()

            async def is_in_use() -> bool:
                return "somebody is at bee" in (await master.ask("POST", "/network/measure")).body["detail"]

            await until(is_in_use)


async def test_scheduler_gets_measured_capacity_with_headroom(tmp_path: Path) -> None:
    async with running_master(tmp_path, peers="on") as master:
        names = ["ant", "bee", "cat"]
        network, exchange = master.parts[LiveNetwork], master.parts[Exchange]
        ant, bee, cat = (master.worker(name, facts=LINKED) for name in names)
        async with ant, bee, cat:
            if True:
                for one in names:
                    for other in names:
                        if one != other:
                            pair = one, other
                            network.show(FlowSample(0.0, {pair: 10e6}, frozenset([pair])))
                assert exchange.flows() == []

                async def is_known() -> bool:
                    node = master.parts[Scheduler].state.own(TransferMemory).transfers.nodes.get("ant")
                    return node is not None and node.up == pytest.approx(15e6)

                await until(is_known)
                view = await master.get("/network")
                assert {node["up"] for node in view["nodes"] if node["known_by"] == "measured"} == {10e6}


def flow(source: str, receiver: str, rate: float, *, is_free: bool = True) -> FileFlow:
    return FileFlow(
        sha256="a" * 64, source=source, receiver=receiver, rate_bytes_s=rate, have_bytes=1, size_bytes=2,
        is_free=is_free,
    )  # fmt: skip


def test_flows_make_a_sample_when_unchanged_for_a_while() -> None:
    samples = FlowSamples()
    one, other = flow("a", "b", 5.0), flow("b", "c", 6.0, is_free=False)
    assert [samples.observe(at / 4, [one, other]) for at in range(4)] == [False, False, True, True]
    assert not samples.observe(4.0, [one])  # a different set of flows
    assert not samples.observe(5.0, [])
    set_back = FlowSamples()
    set_back.observe(90_000.0, [one, other])
    assert [set_back.observe(at / 4, [one, other]) for at in range(4)] == [False, False, True, True]
    assert [samples.observe(float(at), [other]) for at in range(6, 10)] == [False] * 4  # no flow is free
    for at in range(10, 20):
        samples.observe(float(at), [one, other, flow("a", "b", 1.0)])
    (kept,) = {tuple(sample.rates.items()): None for sample in samples._samples[-3:]}
    assert dict(kept) == {("a", "b"): 6.0, ("b", "c"): 6.0}
    assert len(samples._samples) == 3
    samples.observe(700_000.0, [one, other])
    assert [sample.at for sample in samples._samples] == [700_000.0]
    others = [one, other, flow("c", "d", 6.0, is_free=False), flow("d", "e", 6.0, is_free=False)]
    observed = [samples.observe(700_100.0 + at, others) for at in range(5)]
    assert observed == [False, False, False, True, True], "most of them carry no information yet"
    swift = {("b", "c"), ("c", "d")}
    assert [samples.observe(700_200.0 + at, [*others[1:], one], swift) for at in range(2)] == [True, True]
    assert samples._samples[-1].swift == swift


async def test_measured_network_survives_a_restart(tmp_path: Path) -> None:
    switches = dict.fromkeys(("a", "b", "c", "d", "master"), "s")
    file, samples = tmp_path / "measured-network.json", FlowSamples(tmp_path / "measured-network.json")
    for one, other in ((one, other) for one in "abcd" for other in "abcd" if one != other):
        samples.add(FlowSample(1.0, {(one, other): 10e6}, frozenset([(one, other)])))
    await samples.learn(switches)
    assert samples.measured.hosts["a"] == 10e6
    again = FlowSamples(file)
    assert again.is_news(switches)
    await again.learn(switches)
    assert again.measured == samples.measured
    assert not again.is_news(switches)
    file.write_text('[{"at": 1}]')
    assert not FlowSamples(file).is_news(switches), "an incomplete file is ignored"
