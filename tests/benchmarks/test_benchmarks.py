"""Benchmarks stay runnable: each is listed and says what it takes; the harness measures what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import run_all
from benchmarks.harness import grid, limits, peers, tables
from benchmarks.harness.grid import Way, in_turns, yardstick
from benchmarks.rates import parallel_efficiency, processes

FOLDER = Path(run_all.FOLDER)


def test_each_is_listed_with_what_it_answers() -> None:
    listed = (FOLDER / "README.md").read_text("utf-8")
    missing = [name for name in run_all.names() if f"| [{name}.py]({_file(name)}) |" not in listed]
    assert not missing


def test_bags_of_tasks_of_the_same_length_are_all_measured() -> None:
    assert parallel_efficiency.bags_of("3x20,3x100,0.1x7") == [(3.0, 20), (3.0, 100), (0.1, 7)]


def _file(name: str) -> str:
    return run_all.MODULES[name].removeprefix("benchmarks.").replace(".", "/") + ".py"


@pytest.mark.campaign
def test_each_says_what_it_takes() -> None:
    modules = [run_all.MODULES[name] for name in run_all.names()]
    command = [sys.executable, "-c", HELP_OF_ALL, *modules]
    done = subprocess.run(command, cwd=run_all.ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == modules, done.stderr


HELP_OF_ALL = """
import contextlib, io, runpy, sys
for name in sys.argv[1:]:
    sys.argv, said = [name, "--help"], io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(said):
        runpy.run_module(name, run_name="__main__")
    print(name if "--json" in said.getvalue() else f"{name}-has-no-json")
"""


@pytest.mark.campaign
async def test_a_real_grid_and_the_floor_bring_all_results(tmp_path: Path) -> None:
    ways = [
        processes.ours("ours", 3, silent=False),
        *limits.spawn_loops(3, 2, tmp_path),
        limits.floor(peers.PROCESSES, 3),
        limits.floor(peers.CALLS, 3),
    ]
    told: list[str] = []
    found = await in_turns(ways, 1, told.append)
    assert found.keys() == {way.name for way in ways}, told
    assert all(figures["tasks"] == 3 and figures["seconds"] > 0 for all_ in found.values() for figures in all_)
    assert found["ours"][0]["cpu_by_role_s"].keys() == {"master", "agent", "below", "client"}


async def test_one_that_fails_is_told_and_stops_nobody() -> None:
    good = Way("good", "-", lambda: yardstick(*program("print('{\"seconds\": 1}', flush=True)")))
    bad = Way("bad", "-", lambda: yardstick(*program("raise ValueError('no luck')")))
    told: list[str] = []
    found = await in_turns([bad, good], 2, told.append)
    assert [figures["seconds"] for figures in found["good"]] == [1, 1]
    assert "bad" not in found
    assert any("bad is left out" in words and "no luck" in words for words in told)


async def test_what_a_yardstick_leaves_is_gone() -> None:
    """Also what has left its session and its parent, as workers of some peers do."""
    before = set(psutil.Process().children(recursive=True))
    daemon = "subprocess.run(['sh', '-c', 'setsid sleep 1000 &']); print('{}', flush=True)"
    async with yardstick(*program("pass", first=daemon)):
        ours = set(psutil.Process().children(recursive=True)) - before
        assert len(ours) == 2, ours
    assert not set(psutil.Process().children()) - before


def program(each_turn: str, first: str = "print('{}', flush=True)") -> list[str]:
    return [sys.executable, "-c", f"import subprocess, sys; {first}\nfor _ in sys.stdin: {each_turn}"]


def test_a_failing_benchmark_is_in_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(run_all.SHORT, "prediction", ["--no-such-option"])
    monkeypatch.setattr(sys, "argv", ["run_all", "prediction", "--output", str(tmp_path / "results.md")])
    assert run_all.main() == 1
    text = (tmp_path / "results.md").read_text("utf-8")
    assert "## prediction" in text
    assert "unrecognized arguments: --no-such-option" in text
    assert tables.machine()["processor"] in text


async def test_clone_below_tmp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "ROOT", Path("/tmp/clone"))
    with pytest.raises(SystemExit, match="/tmp/clone is below /tmp"):
        async with grid.grid():
            pass


def test_tables_have_words_left_and_figures_right() -> None:
    shown = tables.table(["way", "durable", "rate"], [["a", "yes", "1,000"], ["longer", "-", "7"]])
    assert shown.splitlines() == [
        "way     durable   rate",
        "-" * 22,
        "a       yes      1,000",
        "longer  -            7",
    ]


def test_without_peers_a_table_says_how_to_have_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "PYTHON", tmp_path / "nothing")
    assert {way.name for way in peers.ways(peers.CALLS, 10)} == {"ProcessPoolExecutor", "multiprocessing.Pool"}
    assert "make bench-peers" in peers.hint()[0]
