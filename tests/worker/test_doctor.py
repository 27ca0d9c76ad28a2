"""``loopline doctor``: its findings on this machine, and its self-test with real mouse movements."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from loopline_worker import doctor
from loopline_worker.doctor import Findings, _peers, _waking, in_text
from loopline_worker.host.load import Pressure
from loopline_worker.launch.abilities import Ability
from loopline_worker.power import wake_facts
from loopline_worker.presence.probe import Reading
from loopline_worker.settings import WorkerSettings
from tests.warm import starting
from tests.worker.presence.witnesses import move_mouse, x_server


async def start(folder: Path, display: dict[str, str], *words: str) -> asyncio.subprocess.Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOPLINE", "DBUS"))}
    return await asyncio.create_subprocess_exec(
        *starting("loopline"), "doctor", "--data-dir", str(folder), *words, env=kept | display,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_doctor_prints_its_findings_as_json(tmp_path: Path) -> None:
    doctor = await start(tmp_path, {"LOOPLINE_SLOTZ": "2"}, "--json", "--policy", "spare")
    found = json.loads((await doctor.communicate())[0])
    assert doctor.returncode == 0
    assert {probe["probe"] for probe in found["probes"]} >= {"terminals"}
    assert found["speed"] > 0
    assert any("leave free" in words for words in found["preferences"])
    packages = next(limit for limit in found["limits"] if limit["name"] == "packages that tasks ask for")
    assert packages["detail"].startswith("by uv (")
    unknown = next(limit for limit in found["limits"] if limit["name"] == "no unknown LOOPLINE_ variables")
    assert (unknown["has"], unknown["detail"].endswith("did you mean LOOPLINE_SLOTS?")) == (False, True)


def test_network_card_that_wakes_the_computer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _waking(WorkerSettings(data_dir=tmp_path))
    assert (found.has, found.detail) == (False, "no network card leads to the master (http://127.0.0.1:7461)")
    card = tmp_path / "class/net/lo"
    (card / "device/power").mkdir(parents=True)
    (card / "address").write_text("52:54:00:12:34:56\n")
    (card / "device/power/wakeup").write_text("disabled\n")
    read = partial(wake_facts.read, sys=tmp_path, lid=tmp_path / "lid")
    monkeypatch.setattr(wake_facts, "read", read)
    found = _waking(WorkerSettings(data_dir=tmp_path))
    assert (found.has, found.detail) == (False, "lo, 52:54:00:12:34:56: not armed (sudo ethtool -s lo wol g)")
    (card / "device/power/wakeup").write_text("enabled\n")
    assert _waking(WorkerSettings(data_dir=tmp_path)).has
    assert "allow_wake = false" in _waking(WorkerSettings(data_dir=tmp_path, allow_wake=False)).detail


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_inherited_limits_are_named(tmp_path: Path) -> None:
    words = shlex.join([sys.executable, "-m", "loopline", "doctor", "--json", "--data-dir", str(tmp_path)])
    limited = ["bash", "-c", f"ulimit -t 5000 -f 2000000 -n 200 && exec {words}"]
    found = json.loads(subprocess.run(limited, capture_output=True, check=True).stdout)
    limit = next(limit for limit in found["limits"] if limit["name"] == "no limits inherited that end tasks")
    assert not limit["has"]
    assert all(words in limit["detail"] for words in ("5,000 s of CPU time", "(ulimit -f)", "200 open files"))


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs a mount namespace of its own")
@pytest.mark.parametrize("command", ["doctor", "worker"])
def test_missing_proc_is_one_line_and_exit_code_2(tmp_path: Path, command: str) -> None:
    words = shlex.join([sys.executable, "-m", "loopline", command, "--data-dir", str(tmp_path)])
    hidden = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /proc && exec {words}"]
    ran = subprocess.run(hidden, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 2), ran.stderr
    assert ran.stderr.startswith("error: /proc is not mounted here")


async def test_self_test_detects_a_moved_mouse(tmp_path: Path) -> None:
    with x_server() as display:
        doctor = await start(tmp_path, display, "--self-test")
        assert doctor.stdout
        while b"now move the mouse" not in await doctor.stdout.readline():
            assert not doctor.stdout.at_eof()
        saying, places = asyncio.create_task(doctor.stdout.read()), cycle((40, 41))
        while not saying.done():  # a busy computer may look too late for a single movement
            await asyncio.to_thread(move_mouse, display, next(places))
            await asyncio.wait([saying], timeout=0.1)
        assert re.search(rb"self-test: seen by x11, [01]\.\d", await saying)
        assert await doctor.wait() == 0


async def test_a_wrong_setting_is_exit_code_2(tmp_path: Path) -> None:
    doctor = await start(tmp_path, {}, "--policy", "never")
    _, said = await doctor.communicate()
    assert doctor.returncode == 2
    assert said.startswith(b"error: --policy: ")


@pytest.mark.parametrize(("idle_s", "says"), [(None, "in use, to be safe: x11"), (61.0, "x11 decides")])
def test_doctor_describes_its_findings(idle_s: float | None, says: str) -> None:
    probes = [Reading("x11", 61.0, True, "display :0"), Reading("gnome", detail="no bus"), Reading("terminals", 7.0)]
    limits = [Ability("freezing", False, "no group")]
    found = Findings(
        probes=probes, in_use_says="x11", idle_s=idle_s, slots=0, why="it is late", spare_cpu=1.5, cores=2.0,
        speed=1.1, pressure=Pressure(), on_battery=True, limits=limits, preferences=["Tasks run."],
        peers=Ability("peers", True, "port 7462"), gpus=[],
        waking=Ability("wake-up over the network", False, "no network card"),
    )  # fmt: skip
    text = in_text(found)
    for part in (
        "  + x11: last input 61.0 s ago (display :0)", "  - gnome: no bus", "does not see the desktop", says,
        "on battery", "  - freezing: no group", "  + peers: port 7462", "  Tasks run.",
        "0 slots now, because it is late",
    ):  # fmt: skip
        assert part in text


def test_doctor_says_whether_the_peer_port_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = _peers(WorkerSettings(peer_port=port))
        assert f"port {port} is open to other workers of the grid; it is open now" in found.detail
    assert "it is closed now" in _peers(WorkerSettings(peer_port=port)).detail
    assert not _peers(WorkerSettings(peer_files=False)).has


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        (set(), []),
        ({"sqlalchemy"}, [(False, "fair rates, by filling up; best ones with loopline[planner]")]),
        ({"sqlalchemy", "highspy"}, [(True, "best rates, by HiGHS")]),
    ],
)
def test_doctor_describes_transfer_planning_if_a_master_is_installed(
    installed: set[str], says: list[tuple[bool, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: name in installed or None)
    assert [(ability.has, ability.detail) for ability in doctor._planner()] == says
