from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loopline import http
from loopline.cli.__main__ import main
from tests.cli.fake_master import FakeMaster, serving


@pytest.fixture
def fake() -> Iterator[FakeMaster]:
    with serving() as master:
        yield master


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(fake: FakeMaster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line against the fake master."""
    monkeypatch.setenv("LOOPLINE_MASTER", fake.url)

    def run(*words: str) -> Ran:
        code = main(words)
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port without a listener. It is held, or another test of this run could get it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(autouse=True)
def nobodys_computer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the user's settings, and shorten pauses."""
    for name in tuple(os.environ):
        if name.startswith("LOOPLINE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.001)
    monkeypatch.chdir(tmp_path)
