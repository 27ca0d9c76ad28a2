"""The clock of an attempt measures each phase separately."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from loopline_shared.model import Phases
from loopline_worker.attempts import attempt_clock
from loopline_worker.attempts.attempt_clock import AttemptClock


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(attempt_clock, "_now", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def test_phases_are_measured_separately(passes: Callable[[float], None]) -> None:
    clock = AttemptClock()
    clock.sets_up()
    passes(2.0)
    clock.has_inputs()
    passes(1.0)
    assert clock.wall_s == 0.0, "nothing has run yet"
    clock.begins(None, lambda: None)
    passes(10.0)
    clock.freeze()
    passes(4.0)
    clock.thaw()
    passes(6.0)
    clock.stop()
    clock.ends(20.0)
    passes(8.0)  # its outputs are hashed
    assert clock.wall_s == 16.0
    assert clock.phases(has_outputs=True) == Phases(2.0, 3.0, 23.0, frozen_s=4.0, delivered_s=31.0)
    assert clock.phases(has_outputs=False) == Phases(2.0, 3.0, 23.0, frozen_s=4.0)


def test_attempt_that_only_left_outputs_was_never_frozen(passes: Callable[[float], None]) -> None:
    clock = AttemptClock()
    clock.begins(None, lambda: None)
    passes(5.0)
    clock.ends(None)
    passes(8.0)
    assert clock.phases(has_outputs=True) == Phases(0.0, 0.0, 5.0, delivered_s=13.0)
    assert clock.phases(has_outputs=False) is None
