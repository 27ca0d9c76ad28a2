import logging
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_worker.state import attempt_log as log_module
from loopline_worker.state.attempt_log import AttemptLog, Contributed, Contribution
from tests.worker.bench import run_of


def live(log: AttemptLog, count: int) -> None:
    for task in range(1, count + 1):
        log.began(run_of("echo", "a b", task=task))
        log.ended(Result(AttemptId(1, task, 1), Outcome.SUCCEEDED, 0, wall_s=1.25))


def test_many_attempts_are_logged_as_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(log_module, "_AT_ONCE", 4)
    monkeypatch.setattr(log_module, "_PER_S", 0)
    caplog.set_level(logging.INFO)
    log = AttemptLog(Contribution(tmp_path / "contribution"))
    live(log, 1002)
    assert caplog.messages == [
        "attempt 1.1.1 starts: echo 'a b'",
        "attempt 1.1.1 succeeded after 1.2 s",
        "attempt 1.2.1 starts: echo 'a b'",
        "attempt 1.2.1 succeeded after 1.2 s",
    ]
    caplog.clear()
    for _ in range(2):
        log.sum_up()
    assert caplog.messages == ["attempts beside those: 1,000 began, 1,000 succeeded"]
    monkeypatch.setattr(log_module, "_PER_S", 1e9)
    log.sum_up()
    live(log, 1)
    assert caplog.messages[-1] == "attempt 1.1.1 succeeded after 1.2 s"


def test_start_names_the_user_and_the_job(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO)
    AttemptLog(Contribution(tmp_path / "contribution")).began(run_of("true", user="ann", job_name="sweep"))
    assert caplog.messages == ["attempt 1.1.1 of ann (sweep) starts: true"]


def test_verbose_log_has_all_attempts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(log_module, "_AT_ONCE", 1)
    caplog.set_level(logging.DEBUG)
    live(AttemptLog(Contribution(tmp_path / "contribution")), 10)
    assert len(caplog.messages) == 20


def test_reason_of_a_failed_attempt_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO)
    AttemptLog(Contribution(tmp_path / "contribution")).ended(Result(AttemptId(1, 1, 1), Outcome.FAILED, 3))
    AttemptLog(Contribution(tmp_path / "contribution")).ended(
        Result(AttemptId(1, 2, 1), Outcome.FAILED, -9, "out of memory")
    )
    assert caplog.messages == ["attempt 1.1.1 failed with exit code 3", "attempt 1.2.1 failed: out of memory"]


def test_slot_time_of_each_user_is_counted_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    contribution = Contribution(tmp_path / "contribution")
    for task, user in enumerate(["ann", "ben", "ann"], 1):
        contribution.began(replace(run_of("true", task=task), user=user, slots=2))
        contribution.ended(Result(AttemptId(1, task, 1), Outcome.SUCCEEDED, 0, wall_s=10.0))
    contribution.ended(Result(AttemptId(1, 9, 1), Outcome.GIVEN_BACK, None, wall_s=10.0))  # never started
    contribution.save(at_once=True)
    kept = Contribution(tmp_path / "contribution")
    assert kept.since == 1000.0
    assert kept.users == {"ann": Contributed(2, 40.0, 1000.0), "ben": Contributed(1, 20.0, 1000.0)}
    (tmp_path / "contribution").write_text("torn {")
    assert Contribution(tmp_path / "contribution").users == {}
