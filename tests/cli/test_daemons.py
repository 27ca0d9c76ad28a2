"""Commands that become another program."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from loopline.cli.__main__ import main
from loopline.cli.errors import Exit
from loopline_shared.terminal.parser import Parser


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def execv(_: str, command: list[str]) -> Any:
        commands.append(command)
        raise SystemExit(0)  # exec does not return

    monkeypatch.setattr(os, "execv", execv)
    return commands


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["master", "--port", "1", "--help"], ["-m", "loopline_master"]),
        (["worker", "--slots", "2", "--json", "--", "x"], ["-X", "no_debug_ranges", "-m", "loopline_worker"]),
        (["network", "lab.toml", "--json"], ["-m", "loopline_master.transfers"]),
        (["simulate", "no-passing", "--fit", "1", "--help"], ["-m", "loopline_simulator"]),
    ],
)
def test_all_arguments_are_passed_on(became: list[list[str]], words: list[str], begins: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert became == [[sys.executable, "-P", *begins, *words[1:]]]


def test_replay_executes_the_replay_of_the_store(became: list[list[str]]) -> None:
    for flags in ([], ["--json"], ["--events"]):
        with pytest.raises(SystemExit):
            main(["replay", "grid.db", *flags])
        assert became.pop() == [sys.executable, "-P", "-m", "loopline_master.store.replay", *flags, "--", "grid.db"]


@pytest.mark.parametrize(
    ("command", "missing"), [("worker", "worker"), ("demo", "master,worker"), ("local", "master,worker")]
)
def test_missing_extras_are_named_in_one_command(
    command: str,
    missing: str,
    became: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([command]) == Exit.FAILED
    assert f"pip install 'loopline[{missing}]'" in capsys.readouterr().err
    assert not became


def test_help_and_errors_of_daemons_look_like_those_of_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = Parser("loopline dig", description="Dig a hole.")
    parser.add_argument("--deep", metavar="METRES", help="how deep, up to 100%%")
    parser.add_argument("--old-name", help=argparse.SUPPRESS)
    text = parser.format_help()
    assert text.startswith("Usage: loopline dig [OPTIONS]\n\nDig a hole.\n\n╭─ Options ──")
    assert "│ --deep METRES  How deep, up to 100%." in text
    assert "old-name" not in text
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--deeper"])
    assert capsys.readouterr().err == (
        "error: unrecognized arguments: --deeper\nhint: `loopline dig --help` lists its options\n"
    )
