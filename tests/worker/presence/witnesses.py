"""Stand-ins for people and desktops: real X servers, buses with mock services, terminals."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.presence.x11 import X11

DBUS = "org.freedesktop.DBus"
MOCK = f"{DBUS}.Mock"
_SYSTEM_PYTHON = "/usr/bin/python3"


class Hand(Probe):
    """A probe with a settable idle time."""

    name = "hand"

    def __init__(self, idle_s: float | None = 9999.0) -> None:
        self.idle_s = idle_s

    def look(self) -> Reading:
        return Reading(self.name, self.idle_s, sees_desktop=True)


def need(*programs: str) -> None:
    """Skip if these programs are not installed."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")


@contextmanager
def x_server() -> Iterator[dict[str, str]]:
    """Yield an environment with its own display."""
    need("Xvfb", "xdotool")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "640x480x24", "-nolisten", "tcp", "-noreset"],
        pass_fds=[write], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(write)
    try:
        with os.fdopen(read) as said:
            number = said.readline().strip()
        if not number:
            pytest.skip("Xvfb does not start here")
        yield {"DISPLAY": f":{number}"}
    finally:
        server.kill()
        server.wait()


def only_display(display: dict[str, str], folder: Path) -> X11:
    """Return a probe that knows only this X server, and no Wayland."""
    listening = folder / "listening"
    listening.touch()
    return X11(display, folder, listening)


def move_mouse(display: dict[str, str], place: int) -> None:
    subprocess.run(["xdotool", "mousemove", str(place), "7"], env=os.environ | display, check=True)


@contextmanager
def moving_mouse(display: dict[str, str]) -> Iterator[None]:
    """Move the mouse until the block ends, like an owner who stays: a busy computer may miss a single movement."""
    moves = "while xdotool mousemove 25 7 sleep 0.1 mousemove 35 7 sleep 0.1; do :; done"
    hand = subprocess.Popen(["sh", "-c", moves], env=os.environ | display, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(hand.pid, signal.SIGKILL)
        hand.wait()


@contextmanager
def bus() -> Iterator[str]:
    """Yield the address of a private D-Bus."""
    need("dbus-daemon")
    command = ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1"]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert daemon.stdout
        yield daemon.stdout.readline().strip()
    finally:
        daemon.kill()
        daemon.communicate()


@cache
def _has_dbusmock() -> bool:
    return not subprocess.run([_SYSTEM_PYTHON, "-c", "import dbusmock"], capture_output=True, check=False).returncode


@contextmanager
def mock_service(address: str, *arguments: str) -> Iterator[None]:
    """A python-dbusmock server: Debian's, by the system's own Python."""
    environment = {
        "PATH": os.environ["PATH"],
        "DBUS_SESSION_BUS_ADDRESS": address,
        "DBUS_SYSTEM_BUS_ADDRESS": address,
    }
    if not _has_dbusmock():
        pytest.skip("needs python3-dbusmock")
    server = subprocess.Popen(
        [_SYSTEM_PYTHON, "-m", "dbusmock", *arguments],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr,
    )  # fmt: skip
    try:
        yield
    finally:
        server.kill()
        server.wait()


@contextmanager
def terminal() -> Iterator[tuple[Path, int]]:
    """A pseudo-terminal: its device, and the end for typing."""
    person, program = pty.openpty()
    tty.setraw(program)
    try:
        yield Path(os.ttyname(program)), person
        while select.select([program], [], [], 0)[0]:
            os.read(program, 100)
    finally:
        os.close(person)
        os.close(program)


def type_at(device: Path, person: int) -> None:
    """Type a key, and let a program read it."""
    with device.open("rb", 0) as program:
        os.write(person, b"x")
        program.read(1)
