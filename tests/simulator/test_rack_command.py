"""``simulate rack``: the output beside the paper's table, its pictures, and refused arguments."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_simulator.__main__ import main
from loopline_simulator.drawing import KINDS
from loopline_simulator.papers.rack import tables
from loopline_simulator.papers.rack.measures import RackMeasures
from loopline_simulator.papers.rack.rack_trial import RackAnswer, RackCase
from loopline_simulator.papers.rack.ranking import Results, Verdict, ranked_pairs
from loopline_simulator.papers.rack.workload import Drawn
from tests.simulator.test_rack_workload import LOG

SMALL = ["rack", "--jobs", "60", "--seeds", "2", "--loads", "0.9", "1.1"]


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*SMALL, *words, "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.campaign
def test_the_same_bytes_on_any_number_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    alone = run_json(capsys, "--processes", "1")
    assert run_json(capsys, "--processes", "2") == alone
    assert run_json(capsys, "--processes", "1", "--first-seed", "2") != alone
    runs = json.loads(alone)["runs"]
    assert len(runs) == 2 * 2 * 2 * 3
    assert {(run["used"], run["load"]) for run in runs} == {(1.0, 0.9), (1.0, 1.1), (0.5, 0.9), (0.5, 1.1)}
    naive, current, bold = (
        sum(r["calls"] for r in runs if r["algorithm"] == a) for a in ("naive", "current", "bold")
    )
    assert naive > current > bold
    assert all(run["moved"] == 0 for run in runs if run["algorithm"] == "naive" and run["used"] == 1)


def test_of_the_thrifty_only_the_calls_differ(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run_json(capsys, "--algorithms", "current", "thrifty-current", "--scenarios", "2", "--processes", "1")
    runs = json.loads(printed)["runs"]
    for plain, thrifty in zip(runs[::2], runs[1::2], strict=True):
        assert thrifty["calls"] == thrifty["needed"] < plain["calls"]
        assert thrifty == {**plain, "algorithm": "thrifty-current", "calls": plain["needed"]}


def answers(**values: dict[str, list[float]]) -> Results:
    """Return results of the three algorithms in scenario 1; values that are not given are 1."""
    found = []
    for name in ("naive", "current", "bold"):
        for seed in range(3):
            told = {measure: by_name.get(name, [1.0] * 3)[seed] for measure, by_name in values.items()}
            measures = RackMeasures(**(dict.fromkeys(RackMeasures.__slots__, 1.0) | told))
            found.append(RackAnswer(RackCase(seed, name, Rack(), Drawn()), 1, measures, 1, 1.0))
    return Results(found)


def test_orders_are_compared_by_paired_seeds() -> None:
    """Current is above bold by 0.1 on each seed, however the seeds differ; naive is above neither for sure."""
    results = answers(
        utilisation={"naive": [0.9, 0.5, 0.8], "current": [0.8, 0.6, 0.7], "bold": [0.71, 0.49, 0.6]},
        calls={"naive": [9.0, 9.0, 9.1], "current": [5.0, 5.1, 5.0], "bold": [1.0, 1.1, 1.0]},
        largest_wait={"naive": [5.0, 5.0, 5.1], "current": [7.0, 7.0, 7.1]},
    )
    loads = results.loads
    names = results.algorithms
    assert results.order("utilisation", 1.0, loads, names) == "n=c>b"
    assert results.agreement("utilisation", 1.0, loads) is Verdict.SAME
    assert results.order("calls", 1.0, loads, names) == "b>c>n"
    assert results.agreement("calls", 1.0, loads) is Verdict.BETTER
    assert results.order("largest_wait", 1.0, loads, names) == "b>n>c"
    assert results.agreement("largest_wait", 1.0, loads) is Verdict.WORSE
    assert results.against("utilisation", 1.0, "current", "bold", loads).mean == pytest.approx(0.1)


def test_ranking_agrees_with_the_paper() -> None:
    assert list(ranked_pairs(1.0, "fairness")) == [("current", "naive"), ("naive", "bold"), ("current", "bold")]
    assert list(ranked_pairs(0.5, "fairness")) == [("naive", "bold"), ("current", "bold")]
    assert list(ranked_pairs(0.5, "utilisation")) == [("current", "naive"), ("bold", "naive"), ("bold", "current")]


def test_output_fits_into_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algorithms", "naive", "current", "bold", "thrifty-blend", "--processes", "1"]
    assert main([*SMALL, *words]) == 0
    printed = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
    assert "…" not in printed
    for part in ("scenario 1", "n△ c◎ b×", "Against current", "thrifty-blend", "events per second"):
        assert part in printed


def test_a_difference_is_green_where_it_is_better() -> None:
    results = answers(calls={"naive": [9.0, 9.0, 9.1], "current": [5.0, 5.1, 5.0], "bold": [1.0, 1.1, 1.0]})
    console = Console(width=100, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(tables.picture(results))
    styled = console.export_text(styles=True)
    assert re.search(r"\x1b\[32m *-79 ±0", styled)
    assert re.search(r"\x1b\[31m *\+79 ±5", styled)


def test_a_log_is_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.swf").write_text(LOG)
    words = ["rack", "--swf", str(tmp_path / "log.swf"), "--processes", "1", "--seeds", "3"]
    assert main([*words, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["algorithm"], run["jobs"], run["load"]) for run in runs] == [
        (name, 4, None) for name in ("naive", "current", "bold")
    ]
    assert main([*words, "--loads", "0.5", "2"]) == 0
    assert "as logged" in capsys.readouterr().out


def test_log_has_pictures_of_each_figure(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(LOG)
    words = ["rack", "--swf", str(tmp_path / "log.swf"), "--processes", "1", "--seeds", "3", "--loads", "0.5", "2"]
    assert main([*words, "--pictures", str(tmp_path / "pictures")]) == 0
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == {
        f"rack-{figure}-log.{kind}" for figure in ("frames", "waits", "utilisation") for kind in KINDS
    }


@pytest.mark.campaign
def test_pictures_are_of_the_same_bytes_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--scenarios", "2", "--algorithms", "naive", "bold", "--processes", "1", "--pictures"]
    for folder in ("one", "two"):
        run_json(capsys, *words, str(tmp_path / folder))
    one, two = (sorted((tmp_path / folder).iterdir()) for folder in ("one", "two"))
    assert [file.name for file in one] == [
        f"rack-{figure}-used-50.{kind}" for figure in ("frames", "utilisation", "waits") for kind in KINDS
    ]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--algorithms curent", "did you mean current?"),
        ("--algorithms thrifty-", "there is no algorithm"),
        ("--algorithms powers:0,2,8", "powers:FIRST,BASE,COUNT"),
        ("--largest-side 17", "does not fit in a rack of 16 x 16"),
        ("--scenarios 3", "3"),
        ("--used 1.5", "<= 1"),
        ("--loads 0", "> 0"),
    ],
)
def test_bad_input_is_refused_plainly(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rack", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err
    assert "Traceback" not in captured.err
