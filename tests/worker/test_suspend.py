"""The alarm of the real-time clock, as a folder like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_worker.power.suspend import set_alarm


def test_alarm_is_set_in_whole_seconds_from_now(tmp_path: Path) -> None:
    (tmp_path / "wakealarm").touch()
    set_alarm(90.2, tmp_path)
    assert (tmp_path / "wakealarm").read_text() == "+91"


def test_missing_permission_for_an_alarm_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(LooplineError, match="cannot set an alarm") as refused:
        set_alarm(90.0, tmp_path / "no clock")
    assert "service install --system" in refused.value.hint
