"""The network as shown in a terminal."""

from __future__ import annotations

from loopline_shared.rest.bodies import FileFlow, KnownBy, MeasurementView, NetworkNodeView, NetworkView
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok


def node(
    name: str, parent: str | None, rate: float = 0.0, known_by: KnownBy | None = None, **flowing: float
) -> NetworkNodeView:
    return NetworkNodeView(
        name=name, parent=parent, is_switch=name.startswith("s"), known_by=known_by, up=rate, down=rate,
        **({"flowing_up": 0.0, "flowing_down": 0.0} | flowing),
    )  # fmt: skip


VIEW = NetworkView(
    file=None,
    peers=True,
    nodes=[
        node("switches", None),
        node("s1", "switches", 3.125e6, KnownBy.MEASURED, flowing_up=3.0e6),
        node("ant", "s1", 125e6, KnownBy.ASSUMED, flowing_up=3.0e6),
        node("master", "switches", 1.25e9, KnownBy.FILE),
    ],
    flows=[
        FileFlow(sha256="ab" * 32, source="ant", receiver="bee", rate_bytes_s=3e6, have_bytes=4e6, size_bytes=10e6)
    ],
    measurement=MeasurementView(is_running=False, probes=0, outcome=""),
)


def test_tree_shows_capacity_source_and_flow_of_each_link(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /network", ok(VIEW))
    lines = run("network").out.splitlines()
    assert lines[:4] == [
        "switches",
        "├── s1  25 Mbit/s measured  ↑ 24 Mbit/s (96%)",
        "│   └── ant  1 Gbit/s assumed  ↑ 24 Mbit/s (2%)",
        "└── master  10 Gbit/s as written",
    ]
    assert lines[4] == "abababababab  ant → bee: 40% of 10.0 MB at 24 Mbit/s, 2.0s left"
    assert lines[5] == "no network.toml; `loopline network FILE` checks one; files go between workers"
    written = VIEW.model_copy(update={"file": "/lab/network.toml", "peers": False})
    fake.on("GET /network", ok(written))
    assert run("network").out.splitlines()[-1] == (
        "from /lab/network.toml; files go from the master alone (peers = off, or auto without encryption)"
    )
