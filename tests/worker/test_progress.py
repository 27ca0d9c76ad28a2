"""The progress that running tasks tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.paths import TEMPORARY
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import progress_file, result_file
from tests.worker.bench import until
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, Started, start

__all__ = ["start"]


def written(folder: Path, text: bytes) -> Path:
    (folder / TEMPORARY).mkdir()
    (folder / TEMPORARY / progress_file.NAME).write_bytes(text)
    return folder


@pytest.mark.parametrize(("text", "number"), [(b"0.63\n", 0.63), (b"0", 0.0), (b" 1e0 ", 1.0), (b"", None)])
def test_number_is_read(tmp_path: Path, text: bytes, number: float | None) -> None:
    assert progress_file.read(written(tmp_path, text)) == number


@pytest.mark.parametrize("text", [b"63 %", b"1.01", b"-0.1", b"nan", b"0." + b"1" * 100, b"\xff"])
def test_anything_else_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(ValueError, match="LOOPLINE_PROGRESS"):
        progress_file.read(written(tmp_path, text))


def test_no_link_and_no_pipe_is_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0.5")
    place = written(tmp_path, b"") / TEMPORARY / progress_file.NAME
    for make in (lambda: place.symlink_to(tmp_path / "elsewhere"), lambda: os.mkfifo(place)):
        place.unlink()
        make()
        with pytest.raises(ValueError, match="LOOPLINE_PROGRESS"):
            progress_file.read(tmp_path)


def test_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """It may lead to a file system that does not answer."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    for name in (progress_file.NAME, result_file.NAME):
        (elsewhere / name).write_text("0.5")
    (tmp_path / TEMPORARY).symlink_to(elsewhere)
    assert progress_file.read(tmp_path) is None
    assert not result_file.exists(tmp_path)


def run_of(script: str) -> Run:
    return Run(AttemptId(1, 1, 1), ("/bin/sh", "-c", script), {}, {})


def told_in_two_steps(first: str, gate: Path) -> str:
    """Return a script that tells this, and 0.5 once ``gate`` exists; it ends once ``gate2`` does."""
    steps = ((first, gate), ("0.5", f"{gate}2"))
    return "; ".join(
        f"echo {value} > $LOOPLINE_PROGRESS; until [ -e {end} ]; do sleep 0.01; done" for value, end in steps
    )


def told(master: SmallMaster) -> list[float]:
    return [held.progress for report in master.reports for held in report.holding if held.progress is not None]


def remark(worker: Started) -> str:
    """Return what the only task's result would say of its progress now."""
    return "".join(attempt._progress_remark for attempt in worker.agent.parts.runner._attempts.values())


async def test_reports_bring_the_progress_of_a_running_task(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    master.report_every_s = 0.05
    start()
    gate = tmp_path / "gate"
    await master.say(run_of(told_in_two_steps("0.25", gate)))
    await until(lambda: 0.25 in told(master))
    gate.touch()
    await until(lambda: told(master)[-1] == 0.5)
    (tmp_path / "gate2").touch()
    (result,) = await master.results_of(run_of(""))
    assert (result.outcome, result.reason) == (Outcome.SUCCEEDED, "")


async def test_reason_names_an_invalid_progress(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    master.report_every_s = 0.05
    worker = start()
    gate = tmp_path / "gate"
    await master.say(run_of(f"echo all > $LOOPLINE_PROGRESS; until [ -e {gate} ]; do sleep 0.01; done"))
    await until(lambda: remark(worker))
    count = len(master.reports)
    await until(lambda: len(master.reports) > count + 2)
    gate.touch()
    (result,) = await master.results_of(run_of(""))
    assert (result.outcome, result.reason) == (Outcome.SUCCEEDED, progress_file.REMARK)
    assert told(master) == []


async def test_reason_names_no_invalid_progress_before_a_valid_one(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    master.report_every_s = 0.05
    worker = start()
    gate = tmp_path / "gate"
    await master.say(run_of(told_in_two_steps("all", gate)))
    await until(lambda: remark(worker))
    gate.touch()
    await until(lambda: told(master)[-1:] == [0.5])
    (tmp_path / "gate2").touch()
    (result,) = await master.results_of(run_of(""))
    assert (result.outcome, result.reason) == (Outcome.SUCCEEDED, "")
