"""``loopline wake --test``: the outcomes of a test."""

from __future__ import annotations

import pytest

from loopline.cli import workers
from loopline_shared.protocol.power import SleepCause, SleepKind
from loopline_shared.rest.bodies import SleepView, WorkerView
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok
from tests.cli.views import worker


def slept(since: float | None = None, last_wake_at: float | None = None, failed_wakes: int = 0) -> WorkerView:
    """Return a worker whose computer sleeps ``since`` then; None: it is awake again."""
    sleep = SleepView(
        since=since, kind=SleepKind.SUSPEND, by=SleepCause.TEST, can_be_woken=True, obstacle="",
        wake_sent_at=None, last_wake_at=last_wake_at, failed_wakes=failed_wakes, woken_at=None, wake=None,
    )  # fmt: skip
    return worker(connected=since is None, sleep=sleep)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WAIT_S", 0.0)


def test_test_ends_if_the_computer_does_not_come(fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_TESTED_WITHIN_S", 0.0)
    fake.on("POST /workers/pc-1/wake", ok(worker()))
    fake.on("GET /workers/pc-1", ok(slept(1000.0)))
    ran = run("wake", "pc-1", "--test")
    assert ran.code == 1
    assert "neither magic packets nor its own clock woke pc-1 within 6 minutes" in ran.err


@pytest.mark.parametrize(
    ("after", "code", "words"),
    [
        (slept(last_wake_at=1015.0), 0, "it can be woken"),
        (slept(last_wake_at=500.0), 1, "pc-1 came back before it was woken"),
        (slept(last_wake_at=1015.0, failed_wakes=1), 1, "no magic packet woke pc-1"),
    ],
    ids=["woken", "touched", "alarm"],
)
def test_test_says_how_the_computer_came_back(
    fake: FakeMaster, run: Run, after: WorkerView, code: int, words: str
) -> None:
    fake.on("POST /workers/pc-1/wake", ok(slept(last_wake_at=500.0)))
    fake.on("GET /workers/pc-1", ok(slept(1000.0, 500.0)), ok(after))
    ran = run("wake", "pc-1", "--test")
    assert (ran.code, words in ran.out + ran.err) == (code, True)
