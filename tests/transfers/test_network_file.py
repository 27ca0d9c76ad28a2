"""``network.toml``: its content, and mistakes with their lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_master.transfers.__main__ import main
from loopline_master.transfers.network_file import read_network
from loopline_shared.errors import LooplineError

LAB = """
[switches.core]
hosts = ["master"]
edge = "10 Gbit/s"

[switches.lab-1]
above = "core"
capacity = "1 Gbit/s"
hosts = ["lab1-07"]
edge = "12.5 MB/s"

[switches."lab 2"]
above = "core"
up = "20 Mbit/s"
down = "100 Mbit/s"
hosts = ["lab1-*", "pc?"]
edge = "1 Gbit/s"
"""


def test_a_tree_of_switches_with_the_workers_that_are_there() -> None:
    """The first matching rule holds; a worker without one is reported."""
    network, unplaced = read_network(LAB).network(["lab1-07", "lab1-08", "pc3", "pc10", "master"])
    assert unplaced == ["pc10"]
    assert network.nodes[1:] == (
        NetworkNode("lab-1", "core", 125e6, 125e6, is_switch=True),
        NetworkNode("lab 2", "core", 2.5e6, 12.5e6, is_switch=True),
        NetworkNode("lab1-07", "lab-1", 12.5e6, 12.5e6),
        NetworkNode("lab1-08", "lab 2", 125e6, 125e6),
        NetworkNode("pc3", "lab 2", 125e6, 125e6),
        NetworkNode("master", "core", 1.25e9, 1.25e9),
    )


@pytest.mark.parametrize(
    ("said", "instead", "complaint", "hint"),
    [
        ('above = "core"\ncapacity', 'above = "cor"\ncapacity', "line 7: there is no switch 'cor'", "mean core?"),
        ("capacity", "capacty", "line 8: there is no key 'capacty'", "did you mean capacity?"),
        ('"1 Gbit/s"\nhosts = ["lab1-07"]', '"fast"\nhosts = []', "line 8: 'fast' is no capacity", "1 Gbit/s"),
        ('capacity = "1 Gbit/s"\n', "", "line 6: 'capacity' is missing", "12.5 MB/s"),
        ('edge = "12.5 MB/s"', "", "line 6: 'edge' is missing", ""),
        ('["lab1-07"]', '"lab1-07"', "line 9: hosts are a list of names", ""),
        ('above = "core"\nup', "up", "line 12: 'lab 2' has no switch above it, as 'core' has none", "above"),
        ('[switches."lab 2"]', '[hosts."lab 2"]', "line 1: there is no section 'hosts'", "[switches.NAME]"),
        ("[switches.core]", "[switches.core", "at line 2", ""),
        (
            "[switches.core]\n",
            '[switches.core]\nabove = "lab-1"\ncapacity = "1 MB/s"\n',
            "line 3: the switches above 'core' lead back to it",
            "",
        ),
    ],
)
def test_mistakes_name_their_line(said: str, instead: str, complaint: str, hint: str) -> None:
    assert said in LAB
    with pytest.raises(LooplineError) as caught:
        read_network(LAB.replace(said, instead, 1))
    assert complaint in caught.value.message
    assert "network.toml" in caught.value.message
    assert hint in caught.value.hint


def test_empty_file_is_refused_with_an_example() -> None:
    with pytest.raises(LooplineError, match="names no switch"):
        read_network("")


def test_the_command_draws_the_tree_or_tells_the_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LAB)
    assert main([str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "core",
        "├── hosts master: 10 Gbit/s",
        "├── lab-1: 1 Gbit/s",
        "│   └── hosts lab1-07: 100 Mbit/s",
        "└── lab 2: 20 Mbit/s up, 100 Mbit/s down",
        "    ├── hosts lab1-*: 1 Gbit/s",
        "    └── hosts pc?: 1 Gbit/s",
    ]
    assert main([str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rules"]) == 4
    file.write_text(LAB.replace("capacity", "capacty"))
    assert main([str(file)]) == 1
    assert (
        capsys.readouterr().err
        == "error: network.toml, line 8: there is no key 'capacty'\nhint: did you mean capacity?\n"
    )
    assert main([str(tmp_path / "none.toml")]) == 1
    assert "cannot be read" in capsys.readouterr().err
