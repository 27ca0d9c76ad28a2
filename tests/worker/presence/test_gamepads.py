"""Gamepads: records of the kernel's joystick API, through pipes in place of devices."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline_worker.presence import gamepads as module
from loopline_worker.presence.gamepads import Gamepads
from tests.worker.bench import until
from tests.worker.presence.loops import in_both_loops, running

BUTTON, AXIS, INITIAL = 1, 2, 0x80


class Pad:
    """A simulated gamepad."""

    def __init__(self, device: Path) -> None:
        os.mkfifo(device)
        self._file = os.open(device, os.O_RDWR)

    def says(self, kind: int, value: int, number: int = 0) -> None:
        os.write(self._file, struct.pack("=IhBB", 1, value, kind, number))


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Gamepads]:
    probe = Gamepads(tmp_path)
    yield probe
    probe.close()


def test_buttons_and_large_stick_movements_count_as_use(tmp_path: Path, probe: Gamepads) -> None:
    pad = Pad(tmp_path / "js0")
    (tmp_path / "mouse0").touch()
    pad.says(BUTTON | INITIAL, 1)
    pad.says(AXIS | INITIAL, 20_000)
    pad.says(AXIS, 20_900)
    assert (probe.look().idle_s, probe.look().detail) == (None, "js0")
    pad.says(AXIS, 32_000)
    first = probe.look().idle_s
    assert first is not None
    probe._last = None
    pad.says(AXIS, 31_000)
    assert probe.look().idle_s is None
    pad.says(BUTTON, 0)
    assert probe.look().idle_s is not None
    assert not probe.look().sees_desktop


def test_unplugged_and_foreign_gamepads_are_ignored(tmp_path: Path, probe: Gamepads) -> None:
    assert probe.look().detail == "there is none"
    pad = Pad(tmp_path / "js1")
    probe._surveyed = float("-inf")
    assert probe.look().detail == "js1"
    os.close(pad._file)
    assert (probe.look(), probe.look().detail)[1] == "there is none"
    assert Gamepads(tmp_path / "missing").look().idle_s is None


@in_both_loops
async def test_input_is_reported_at_once(
    tmp_path: Path, probe: Gamepads, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    pad, inputs = Pad(tmp_path / "js0"), list[bool]()
    monkeypatch.setattr(module, "_SURVEY_EVERY_S", 0.0)
    async with running(loop, probe.listen(lambda: inputs.append(True))):
        await until(lambda: probe._watched)
        probe.look()
        pad.says(BUTTON, 1, number=3)
        await until(lambda: inputs)
    assert probe._watched is None


@in_both_loops
async def test_existing_gamepad_is_watched_until_it_is_unplugged(tmp_path: Path, probe: Gamepads, loop: str) -> None:
    stays, goes, inputs = Pad(tmp_path / "js0"), Pad(tmp_path / "js1"), list[bool]()
    assert probe.look().detail == "js0, js1"
    async with running(loop, probe.listen(lambda: inputs.append(True))):
        os.close(goes._file)
        await until(lambda: list(probe._files) == ["js0"])
        assert not inputs
        stays.says(BUTTON, 1)
        await until(lambda: inputs)
