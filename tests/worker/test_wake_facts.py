"""The network card that wakes the computer, read from folders like those of the kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from loopline_shared.model import Facts
from loopline_shared.protocol.power import Armed, WakeFacts
from loopline_worker import parts
from loopline_worker.core.hours import Hours
from loopline_worker.owner.blockers import Pause
from loopline_worker.power import wake_facts
from loopline_worker.settings import WorkerSettings
from loopline_worker.task_group import TaskGroup

ADDRESS = "52:54:00:12:34:56"


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A computer with one wired, armed card."""
    write(tmp_path / "class/net/enp3s0", address=ADDRESS.upper(), device__power__wakeup="enabled")
    write(tmp_path / "power", mem_sleep="s2idle [deep]")
    return tmp_path


def read(tree: Path, card: str = "enp3s0") -> WakeFacts | None:
    return wake_facts.read(card, "10.1.2.0/24", is_allowed=True, can_suspend=False, sys=tree, lid=tree / "lid")


@contextmanager
def in_zone(zone: str) -> Iterator[None]:
    """Set the time zone of this process until the context ends."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            yield
    finally:
        time.tzset()


def test_wired_card_is_read(tree: Path) -> None:
    assert read(tree) == WakeFacts(
        "enp3s0", ADDRESS, "10.1.2.0/24", from_suspend=Armed.YES, from_off=Armed.UNKNOWN, mem_sleep="deep"
    )


@pytest.mark.parametrize(("content", "armed"), [("disabled", Armed.NO), ("", Armed.UNKNOWN)])
def test_armed_is_as_the_driver_says(tree: Path, content: str, armed: Armed) -> None:
    write(tree / "class/net/enp3s0", device__power__wakeup=content)
    found = read(tree)
    assert found
    assert found.from_suspend is armed


def test_card_of_an_unknown_driver_is_neither_armed_nor_unarmed(tree: Path) -> None:
    (tree / "class/net/enp3s0/device/power/wakeup").unlink()
    (tree / "power/mem_sleep").unlink()
    found = read(tree)
    assert found
    assert (found.from_suspend, found.mem_sleep) == (Armed.UNKNOWN, "")


def test_wifi_closed_lid_and_battery_are_obstacles(tree: Path) -> None:
    write(tree / "class/power_supply/BAT0", type="Battery", status="Discharging", scope="System")
    found = read(tree)
    assert found
    assert found.obstacle == "it runs on battery"
    write(tree / "lid/LID0", state="state:      closed")
    found = read(tree)
    assert found
    assert found.obstacle == "its lid is closed"
    (tree / "class/net/enp3s0/phy80211").mkdir()
    found = read(tree)
    assert found
    assert (found.is_wired, found.obstacle) == (False, "it is on Wi-Fi")


@pytest.mark.parametrize("address", ["00:00:00:00:00:00", "", "tunnel"])
def test_card_without_a_hardware_address_cannot_be_woken(tree: Path, address: str) -> None:
    write(tree / "class/net/lo", address=address)
    assert read(tree, "lo") is None


def test_card_is_found_by_its_address() -> None:
    assert wake_facts.card_of("127.0.0.1") == ("lo" if Path("/sys/class/net/lo").exists() else "")
    assert wake_facts.card_of("203.0.113.9") == ""


@pytest.mark.parametrize(
    ("zone", "spans"),
    [
        ("UTC", ((1080, 1920), (7200, 8640))),
        ("XYZ-2", ((960, 1800), (7080, 8520))),
        ("XYZ+9", ((1620, 2460), (7740, 9180))),
    ],
)
def test_hours_of_the_owner_are_given_in_utc(tree: Path, zone: str, spans: tuple[tuple[int, int], ...]) -> None:
    facts = read(tree)
    assert facts
    with in_zone(zone):
        found = wake_facts.with_hours(facts, Hours.parse("mon 18:00-08:00, sat"), 0.0)
    assert (found.hours, found.not_before) == (spans, 0.0)


@pytest.mark.parametrize(
    ("said_on", "asked_at", "is_allowed"),
    [
        ("2026-10-23 17:00 +0200", "2026-10-24 18:00 +0200", True),
        ("2026-10-23 17:00 +0200", "2026-10-26 17:59 +0100", False),
        ("2026-10-23 17:00 +0200", "2026-10-26 18:00 +0100", True),
        ("2026-10-23 17:00 +0200", "2026-10-27 07:59 +0100", True),
        ("2027-03-26 17:00 +0100", "2027-03-30 08:00 +0200", False),
        ("2027-03-26 17:00 +0100", "2027-03-30 07:59 +0200", True),
        ("2027-03-26 17:00 +0100", "2027-03-29 18:00 +0200", True),
        ("2027-06-01 12:00 +0200", "2027-06-07 18:00 +0200", True),
    ],
)
def test_hours_follow_the_change_of_clocks_during_a_sleep(
    tree: Path, monkeypatch: pytest.MonkeyPatch, said_on: str, asked_at: str, is_allowed: bool
) -> None:
    said_at, asked = (datetime.strptime(one, "%Y-%m-%d %H:%M %z").timestamp() for one in (said_on, asked_at))
    monkeypatch.setattr(time, "time", lambda: said_at)
    facts = read(tree)
    assert facts
    with in_zone("CET-1CEST,M3.5.0,M10.5.0/3"):  # as in Berlin
        facts = wake_facts.with_hours(facts, Hours.parse("mon-sun 18:00-08:00"), 0.0)
    assert facts.allow_tasks(asked) is is_allowed


def test_pause_of_the_owner_forbids_waking_until_its_end(tree: Path) -> None:
    facts = read(tree)
    assert facts
    before = time.time()
    paused = wake_facts.with_hours(facts, Hours(), 3600.0)
    assert before + 3600.0 <= paused.not_before <= time.time() + 3600.0
    for_good = wake_facts.with_hours(facts, Hours(), math.inf)
    assert for_good.not_before == 1e10
    assert TypeAdapter(WakeFacts).validate_python(asdict(for_good)) == for_good, "the master takes it"


async def test_facts_are_those_of_the_card_that_leads_to_the_master_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The computer had no network when its worker started."""
    found = list[tuple[str, str]]()

    def read(card: str, subnet: str, **_: bool) -> None:
        found.append((card, subnet))

    monkeypatch.setattr(wake_facts, "read", read)
    async with TaskGroup() as task_group:
        settings, without_network = (
            WorkerSettings(master="http://127.0.0.1:1"),
            Facts("linux", "x86_64", "3.11", "0", "PC", cpus=1, memory_bytes=1, slots=1),
        )
        (wing,) = parts._sleep(settings, without_network, task_group, Pause(tmp_path / "pause"))
        wing._facts("", True)
        wing._facts("127.0.0.1", True)
    assert found == [("", ""), ("lo", "127.0.0.0/8")]
