"""``loopline wake --test``: what it says about a computer that does not pass."""

from __future__ import annotations

import pytest

from loopline.cli import workers
from loopline_shared.protocol.power import SleepCause, SleepKind
from loopline_shared.rest.bodies import SleepView, WorkerView
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok
from tests.cli.views import worker


def asleep(since: float | None = 1000.0, wake_sent_at: float | None = None) -> WorkerView:
    """Return a worker whose computer sleeps, or is awake again with ``since`` None."""
    sleep = SleepView(
        since=since, kind=SleepKind.SUSPEND, by=SleepCause.TEST, can_be_woken=True, obstacle="",
        wake_sent_at=wake_sent_at, failed_wakes=0, woken_at=None, wake=None,
    )  # fmt: skip
    return worker(connected=since is None, sleep=sleep)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WAIT_S", 0.0)


def test_test_ends_if_the_computer_does_not_come(fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_TESTED_WITHIN_S", 0.0)
    fake.on("POST /workers/pc-1/wake", ok(worker()))
    fake.on("GET /workers/pc-1", ok(asleep()))
    ran = run("wake", "pc-1", "--test")
    assert ran.code == 1
    assert "neither magic packets nor its own clock woke pc-1 within 6 minutes" in ran.err
