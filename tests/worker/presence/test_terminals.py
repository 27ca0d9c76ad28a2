"""Terminals: a real pseudo-terminal, and made-up folders of devices."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from loopline_worker.presence import terminals
from loopline_worker.presence.terminals import Terminals, has_display
from tests.worker.presence.witnesses import terminal, type_at

LONG_AGO = 1_000_000.0


def only(device: Path, folder: Path) -> Path:
    """A /dev with only this terminal."""
    (folder / "pts").mkdir(parents=True)
    (folder / "pts" / device.name).symlink_to(device)
    return folder


def test_key_at_a_terminal_counts_as_an_input(tmp_path: Path) -> None:
    with terminal() as (device, person):
        os.utime(device, (LONG_AGO, LONG_AGO))
        probe = Terminals(only(device, tmp_path))
        reading = probe.look()
        assert reading.idle_s
        assert reading.idle_s > 1e8
        assert reading.detail == f"/dev/pts/{device.name}"
        type_at(device, person)
        idle_s = probe.look().idle_s
        assert idle_s is not None
        assert idle_s < 1e8


def device(folder: Path, name: str, ago_s: float) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (time.time() - ago_s, 0))


def test_latest_input_of_all_terminals_counts(tmp_path: Path) -> None:
    for name, ago_s in {"tty1": 500, "pts/3": 300, "tty0": 1, "pts/ptmx": 1, "null": 1, "ttyS0": 400}.items():
        device(tmp_path, name, ago_s)
    reading = Terminals(tmp_path).look()
    assert reading.idle_s == pytest.approx(300, abs=30)
    assert reading.detail == "/dev/pts/3"


def test_computer_without_terminals_is_idle_since_its_boot(tmp_path: Path) -> None:
    reading = Terminals(tmp_path).look()
    assert reading.idle_s == pytest.approx(time.time() - psutil.boot_time(), abs=30)


def test_terminal_with_a_future_time_counts_as_in_use(tmp_path: Path) -> None:
    device(tmp_path, "tty1", -86400)
    assert Terminals(tmp_path).look().idle_s == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize(
    ("socket", "there"),
    [
        ("@/tmp/.X11-unix/X0", True), ("/run/user/1000/wayland-0", True), ("/run/dbus/system_bus_socket", False),
        ("/run/user/1000/wayland-0.lock", False),
    ],
)  # fmt: skip
def test_terminals_suffice_only_without_a_display(tmp_path: Path, socket: str, there: bool) -> None:
    sockets = tmp_path / "unix"
    sockets.write_text(f"Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 0 1 1 77 {socket}\n")
    assert has_display(sockets) == there
    assert Terminals(tmp_path, sockets, contained=False).look().sees_desktop == (not there)
    assert not Terminals(tmp_path, sockets, contained=True).look().sees_desktop


def test_invisible_displays_count_as_possible(tmp_path: Path) -> None:
    assert has_display(tmp_path / "nothing")


OPENS_ONE = """
import os, pty, sys, time
pid, person = pty.fork()
if pid == 0:
    os.write(1, os.ttyname(0).encode())
    time.sleep(100)
print(os.read(person, 100).decode(), flush=True)
time.sleep(100)
"""


def test_terminal_opened_by_a_task_does_not_count(tmp_path: Path) -> None:
    task = subprocess.Popen([sys.executable, "-I", "-S", "-c", OPENS_ONE], stdout=subprocess.PIPE, text=True)
    try:
        assert task.stdout
        opened = Path(task.stdout.readline().strip())
        with terminal() as (device, _):
            os.utime(device, (LONG_AGO, LONG_AGO))
            probe = Terminals(only(device, tmp_path))
            (tmp_path / "pts" / opened.name).symlink_to(opened)
            assert probe.look().detail == f"/dev/pts/{device.name}"
    finally:
        task.kill()
        task.communicate()


@pytest.mark.parametrize("set_by_s", [-86400.0, 86400.0])
def test_idle_time_stays_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by_s: float
) -> None:
    """Setting the clock forward would add a day of idle time, and tasks would start while a person types."""
    window = tmp_path / "pts" / "0"
    window.parent.mkdir()
    window.touch()
    os.utime(window, (time.time() - 100.0,) * 2)
    probe = Terminals(tmp_path, contained=True)
    assert probe.look().idle_s == pytest.approx(100.0, abs=50.0)
    wall = time.time
    monkeypatch.setattr(terminals.time, "time", lambda: wall() + set_by_s)
    assert probe.look().idle_s == pytest.approx(100.0, abs=50.0)
