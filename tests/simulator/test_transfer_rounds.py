"""``simulate transfer --rounds``: small cases by hand, invariants of every way, and the command."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_shared.model import Order
from loopline_simulator.__main__ import main
from loopline_simulator.fast.trial import settings
from loopline_simulator.papers.data_transfer.assignment_trial import SEARCHES
from loopline_simulator.papers.data_transfer.data_grid import (
    DataGrid,
    DataTask,
    LiveWorld,
    RoundsWorld,
    Trigger,
    file_name,
)
from loopline_simulator.papers.data_transfer.rounds_trial import IN_ROUNDS, LIVE, RoundsCase, cases, run
from loopline_simulator.papers.data_transfer.transfer_scenario import MASTER, TransferScenario

SMALL = TransferScenario(hosts=6, switches=3, files=8, wants=2, size_mb=100.0)


def star(*tasks: DataTask, speeds: tuple[float, ...] = (1.0,)) -> DataGrid:
    """Hosts on links of 10 bytes per second. Files of 100 bytes, which the master has."""
    nodes = [NetworkNode("root", None, is_switch=True)]
    hosts = {f"host-{number}": speed for number, speed in enumerate(speeds)}
    nodes += [NetworkNode(name, "root", 10.0, 10.0) for name in (MASTER, *hosts)]
    files = {file for task in tasks for file in task.files}
    return DataGrid(tuple(nodes), dict.fromkeys(files, 100.0), dict.fromkeys(files, (MASTER,)), tasks, hosts)


def in_rounds(grid: DataGrid, trigger: Trigger) -> RoundsWorld:
    world = RoundsWorld(grid, SEARCHES["local-first"], trigger, seed=1, plans=1)
    world.run()
    return world


def live(grid: DataGrid, prefetch_s: float = 1.0) -> LiveWorld:
    world = LiveWorld(grid, replace(settings("round-robin", Order.NONE, 1), peers=True, prefetch_s=prefetch_s))
    world.run()
    return world


def test_files_of_prefetched_tasks_compete_with_those_of_running_ones() -> None:
    """10 s for each file, then 3 s; the planner does not know which of the files is needed first."""
    grid = star(DataTask((file_name("a"),), 3.0), DataTask((file_name("b"),), 3.0))
    assert sorted(in_rounds(grid, Trigger(1)).ended.values()) == pytest.approx([13.0, 26.0])
    assert sorted(live(grid).ended.values()) == pytest.approx([13.0, 26.0])
    assert sorted(live(grid, prefetch_s=60.0).ended.values()) == pytest.approx([23.0, 26.0])


def test_host_keeps_files_for_later_tasks() -> None:
    shared = (file_name("a"),)
    grid = star(DataTask(shared, 2.0), DataTask(shared, 2.0), DataTask((), 2.0))
    assert max(in_rounds(grid, Trigger(1)).ended.values()) == pytest.approx(16.0)
    assert max(live(grid).ended.values()) == pytest.approx(16.0)


@pytest.mark.parametrize(("trigger", "ends"), [(Trigger(1), 8.0), (Trigger(2), 12.0), (Trigger(2, 1.0), 9.0)])
def test_round_begins_when_hosts_are_idle_or_after_a_time(trigger: Trigger, ends: float) -> None:
    """Three tasks of 4 s at speed 1, on hosts of speeds 1 and 4."""
    grid = star(*[DataTask((), 4.0)] * 3, speeds=(1.0, 0.5))
    assert max(in_rounds(grid, trigger).ended.values()) == pytest.approx(ends)


@pytest.mark.parametrize("case", cases(SMALL, [0.1, 10.0], 3, 5, [1]), ids=lambda case: f"{case.way}-{case.ratio}")
def test_every_way_ends_every_task_within_its_bounds(case: RoundsCase) -> None:
    grid, answer = case.grid(), run(case)
    work = sum(task.work for task in grid.tasks)
    assert answer == run(case)
    assert answer.makespan_s >= work / sum(grid.speeds.values())
    assert answer.mean_s < answer.makespan_s
    assert (answer.rounds > 0) == bool(case.trigger)


def test_command_prints_a_table_of_100_columns_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "transfer",
        "--rounds",
        "--hosts",
        "4",
        "--switches",
        "2",
        "--tasks",
        "2",
        "--plans",
        "3",
        "--seeds",
        "2",
    ]
    assert main([*words, "--ratios", "1", "--processes", "1"]) == 0
    printed = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
    assert main([*words, "--ratios", "1", "--processes", "1", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["rounds"]
    assert {run["way"] for run in runs} == {*LIVE, *IN_ROUNDS}
    assert all(run["makespan_s"] > run["mean_s"] > 0 for run in runs)
