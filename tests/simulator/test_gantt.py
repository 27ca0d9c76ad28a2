"""Gantt charts: their content, and reproducible bytes."""

from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_simulator import gantt
from loopline_simulator.drawing import KINDS
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.trial import Case, record
from loopline_simulator.fast.workload import Workload

CASE = Case(1, "round-robin", Order.HOLD, Workload(jobs=5, tasks=9, interval=20.0), Park(count=7))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return gantt.draw_case(CASE, tmp_path / "new" / "folder")


def test_chart_is_a_pdf_a_png_and_an_svg_that_can_be_printed(files: list[Path]) -> None:
    assert [file.name for file in files] == [f"gantt-round-robin-every-20.{kind}" for kind in KINDS]
    pdf, png, svg = (file.read_bytes() for file in files)
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") >= 1600
    assert svg.startswith(b"<?xml")
    assert b"<dc:date>" not in svg


@pytest.mark.campaign
def test_the_bytes_do_not_depend_on_when_they_are_drawn(files: list[Path], tmp_path: Path) -> None:
    again = gantt.draw_case(CASE, tmp_path / "again")
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]


def test_all_attempts_and_holds_are_drawn() -> None:
    recorder, _ = record(CASE, attempts=True)
    hosts = [(host.name, "x") for host in CASE.park.hosts(1)]
    chart = gantt.Chart("title", hosts, recorder.jobs(), recorder.attempts)
    above, below = gantt._figure(chart).axes
    won, lost = (len(bars.get_paths()) for bars in above.collections[:2])
    assert won == sum(job_tasks for job_tasks in [9] * 5)
    assert lost == len(recorder.attempts) - won > 0
    held = [bars for bars in below.collections if tuple(bars.get_facecolor()[0][:3]) == (0.0, 0.0, 0.0)]
    assert len(held) == sum(job.held_for > 0 for job in recorder.jobs()) > 0
    assert below.get_xlabel() == "time (s)"


def test_a_folder_that_cannot_be_written_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LooplineError, match="file"):
        gantt.draw_case(CASE, tmp_path / "file")
