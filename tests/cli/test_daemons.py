"""Commands that become another program."""

import os
import sys
from typing import Any

import pytest

from loopline.cli.__main__ import main
from loopline.cli.errors import Exit


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def execv(_: str, command: list[str]) -> Any:
        commands.append(command)
        raise SystemExit(0)  # whoever becomes another program does not come back

    monkeypatch.setattr(os, "execv", execv)
    return commands


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["master", "--port", "1", "--help"], "loopline_master"),
        (["worker", "--slots", "2", "--json", "--", "x"], "loopline_worker"),
        (["network", "lab.toml", "--json"], "loopline_master.transfers"),
        (["simulate", "no-passing", "--fit", "1", "--help"], "loopline_simulator"),
    ],
)
def test_all_arguments_are_passed_on(became: list[list[str]], words: list[str], module: str) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert became == [[sys.executable, "-P", "-m", module, *words[1:]]]


def test_replay_becomes_the_stores_own(became: list[list[str]]) -> None:
    for flags in ([], ["--json"], ["--events"]):
        with pytest.raises(SystemExit):
            main(["replay", "grid.db", *flags])
        assert became.pop() == [sys.executable, "-P", "-m", "loopline_master.store.replay", *flags, "--", "grid.db"]


def test_what_is_not_installed_is_said(
    became: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["worker"]) == Exit.FAILED
    assert "pip install 'loopline[worker]'" in capsys.readouterr().err
    assert not became
