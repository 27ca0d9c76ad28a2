"""The alarm of the real-time clock, as a folder like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_worker.power.clock_alarm import ClockAlarm

NOW = 1000


@pytest.fixture
def alarm(tmp_path: Path) -> Path:
    (tmp_path / "since_epoch").write_text(f"{NOW}\n")
    (tmp_path / "wakealarm").touch()
    return tmp_path / "wakealarm"


def test_alarm_is_set_in_whole_seconds_from_now(alarm: Path) -> None:
    ClockAlarm(alarm.parent).set(90.2)
    assert alarm.read_text() == "+91"


@pytest.mark.parametrize(("others", "is_kept"), [(NOW + 50, True), (NOW + 500, False), (NOW - 50, False)])
def test_earlier_alarm_of_another_program_is_kept(alarm: Path, others: int, is_kept: bool) -> None:
    alarm.write_text(f"{others}\n")
    ClockAlarm(alarm.parent).set(90.0)
    assert alarm.read_text() == (f"{others}\n" if is_kept else "+90")


@pytest.mark.parametrize("others", ["", str(NOW + 500)])
def test_clear_restores_the_replaced_alarm(alarm: Path, others: str) -> None:
    alarm.write_text(others)
    own = ClockAlarm(alarm.parent)
    own.set(90.0)
    own.set(60.0)
    own.clear()
    assert alarm.read_text() == (others or "0")
    alarm.write_text(str(NOW + 70))
    own.clear()
    assert alarm.read_text() == str(NOW + 70), "it is not ours"


def test_missing_permission_for_an_alarm_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(LooplineError, match="cannot set an alarm") as refused:
        ClockAlarm(tmp_path / "no clock").set(90.0)
    assert "service install --system" in refused.value.hint
