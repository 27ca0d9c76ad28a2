"""Tables fit the terminal: columns are dropped, then cells are folded; in pipes all columns are printed."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from loopline.cli.render import human, tables
from loopline_shared.model import TaskState
from loopline_shared.protocol.power import SleepCause, SleepKind
from loopline_shared.rest.bodies import Counts, SleepView
from tests.cli.views import job, task, worker

LONG = "a-name-of-sixty-letters-that-somebody-has-really-given-to-it"


def drawn(thing: object, columns: int) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, markup=False, highlight=False)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_least_important_columns_are_dropped_first() -> None:
    made = tables.table("a", "b", "c", right=("c",), drop=("b", "c"))
    made.add_row("one", "two", "three")
    assert [drawn(made, width)[0].split() for width in (40, 12, 5)] == [["a", "b", "c"], ["a", "c"], ["a"]]


def test_long_cells_are_folded_when_no_column_is_left_to_drop() -> None:
    made = tables.table("a", "why", drop=("a",), fold={"why": 5})
    made.add_row("1", "because of that")
    assert drawn(made, 20)[2:] == ["1   because of that"]
    assert drawn(made, 12)[2:] == ["1   because", "    of that"]


@pytest.mark.parametrize("columns", [80, 200])
def test_every_list_fits(columns: int) -> None:
    jobs = [job(7, name=LONG, tasks=Counts(queued=3, running=258, prefetched=256, failed=2)), job(8)]
    tasks = [task(1, TaskState.FAILED, exit_code=3, reason="ValueError: " + LONG, parameters={"lr": 0.1, "seed": 7})]
    workers = [worker(LONG), worker("ant")]
    for made in (tables.jobs(jobs), tables.tasks(tasks), tables.workers(workers)):
        lines = drawn(made, columns)
        assert max(map(len, lines)) <= columns
        assert columns == 80 or len([line for line in lines if line.strip()]) <= 4, "no line is wrapped"
    assert "2 running, 256 prefetched" in " ".join(" ".join(drawn(tables.jobs(jobs), 200)).split())


def test_row_of_a_task_shows_its_parameters_and_failure() -> None:
    failed = task(3, TaskState.FAILED, exit_code=1, reason="no data", parameters={"i": 3}, wall_s=2.0)
    line = " ".join(drawn(tables.tasks([failed]), 80)[-1].split())
    assert line.startswith("7.3 i=3 failed")
    assert "2.0s 1" in line
    assert line.endswith("no data")


def test_implausible_size_is_marked() -> None:
    small = job(7, size=10.0, size_source="given", ledger={"useful_cpu_s": 100.0})
    assert tables.size(small) == "10s (cannot be true)"
    assert tables.size(job(7, size=10.0, size_source="given", ledger={"useful_cpu_s": 10.0})) == "10s"


def test_long_names_are_shortened_in_the_middle() -> None:
    assert human.short("short") == "short"
    assert human.short(LONG) == f"{LONG[:15]}…{LONG[-8:]}"
    assert len(human.short(LONG)) == 24


def test_long_durations_are_in_years() -> None:
    assert human.duration(71_368 * 86400.0) == "195y 193d"
    assert human.duration(364 * 86400.0 + 3600) == "364d 1h"


def test_sleeping_worker_is_shown_apart_from_an_absent_one() -> None:
    ten_past_ten = time.mktime((2020, 11, 30, 22, 10, 0, 0, 0, -1))
    sleep = SleepView(
        since=ten_past_ten, kind=SleepKind.SUSPEND, by=SleepCause.IDLE, can_be_woken=True, obstacle="",
        wake_sent_at=None, last_wake_at=None, failed_wakes=0, woken_at=None, wake=None,
    )  # fmt: skip
    assert tables.worker_state(worker(connected=False, sleep=sleep)).plain == "asleep since 2020-11-30 22:10"
    assert human.clock(ten_past_ten, ten_past_ten + 3600) == "22:10"
    awake = sleep.model_copy(update={"since": None})
    assert tables.worker_state(worker(connected=False, sleep=awake)).plain == "away"
    assert tables.worker_state(worker(sleep=awake)).plain == "connected"


def test_pipes_get_all_columns(tmp_path: Path) -> None:
    assert "submitted" in drawn(tables.jobs([job(7)]), 200)[0]
