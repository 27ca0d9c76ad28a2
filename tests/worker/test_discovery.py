"""The master and token that a worker without --master uses."""

import logging
import os
import socket
from pathlib import Path

import pytest

from loopline_shared.joining import Membership, membership_file
from loopline_worker import discovery
from loopline_worker import settings as module
from loopline_worker.discovery import with_master
from loopline_worker.link.http_client import HttpClient
from loopline_worker.settings import WorkerSettings

_announced = discovery.announced
JOINED = Membership("http://lab-pc:7461", "pc-1", "ll_1_x")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TOKEN", "TOKEN_FILE", "MASTER", "NAME", "CONFIG"):
        monkeypatch.delenv(f"LOOPLINE_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(module, "_token_of_own_master", lambda: tmp_path / "own")
    monkeypatch.setattr(discovery, "announced", lambda: "")


def test_worker_uses_the_master_it_has_joined(tmp_path: Path) -> None:
    JOINED.write()
    assert membership_file().is_relative_to(tmp_path)
    settings = with_master(WorkerSettings.load())
    assert (settings.master, settings.name, settings.find_token()) == ("http://lab-pc:7461", "pc-1", "ll_1_x")


def test_master_and_standby_come_from_one_line() -> None:
    member = Membership("http://one:7461,http://two:7461", "pc-1", "ll_1_x")
    member.write()
    settings = with_master(WorkerSettings.load())
    assert (settings.master, settings.other_masters) == ("http://one:7461", ("http://two:7461",))
    assert settings.belongs_to(member)


def test_set_master_takes_precedence_and_gets_no_other_token() -> None:
    JOINED.write()
    settings = with_master(WorkerSettings.load(master="http://other:1", name="mine"))
    assert (settings.master, settings.name, settings.find_token()) == ("http://other:1", "mine", None)


@pytest.mark.parametrize("master", ["http://lab-pc:7461", "http://LAB-PC:7461/"])
def test_name_belongs_to_the_token_even_if_the_master_is_set(master: str) -> None:
    JOINED.write()
    settings = with_master(WorkerSettings.load(master=master))
    assert (settings.name, settings.find_token()) == ("pc-1", "ll_1_x")


@pytest.mark.parametrize("master", ["http://Lab-PC:80", "https://LAB:443", "http://lab-pc/grid"])
def test_different_spellings_of_an_address_are_the_same_master(master: str) -> None:
    """Earlier releases stored the address as written in the line."""
    member = Membership(master, "pc-1", "ll_1_x", "ab" * 32, "a CA")
    member.write()
    settings = with_master(WorkerSettings.load())
    assert settings.belongs_to(member)
    assert settings.find_token() == "ll_1_x"
    assert HttpClient(settings).master.startswith("https://"), "plain HTTP is not used if a CA is known"


def test_set_name_is_kept() -> None:
    JOINED.write()
    assert with_master(WorkerSettings.load(name="mine")).name == "mine"


def test_announced_master_is_only_a_hint_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "announced", lambda: "http://evil:7461")
    with caplog.at_level(logging.WARNING):
        settings = with_master(WorkerSettings.load())
    assert settings.master == "http://127.0.0.1:7461"
    assert "http://evil:7461" in caplog.text
    assert "loopline token join" in caplog.text


def test_announcements_are_not_awaited_without_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(discovery, "announced", lambda: pytest.fail("it did"))
    with_master(WorkerSettings.load(master="http://other:1"))
    (tmp_path / "own").write_text("ll_own")
    assert with_master(WorkerSettings.load()).find_token() == "ll_own"


def test_an_announced_master_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    zeroconf = pytest.importorskip("zeroconf", reason="the extra 'discovery' is not installed")
    monkeypatch.setattr(discovery, "_LISTEN_S", 60.0)
    monkeypatch.setattr(discovery, "SERVICE", f"_ll{os.getpid()}._tcp.local.")  # of this test only
    info = zeroconf.ServiceInfo(
        discovery.SERVICE,
        f"loopline-test.{discovery.SERVICE}",
        port=7461,
        addresses=[socket.inet_aton("127.0.0.1")],
    )
    network = zeroconf.Zeroconf(interfaces=["127.0.0.1"])
    try:
        network.register_service(info)
        assert _announced() == "http://127.0.0.1:7461"
    finally:
        network.close()
