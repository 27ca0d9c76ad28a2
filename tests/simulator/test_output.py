"""Output that all experiments share: CSV, a folder with everything, kept runs, and a warning of few seeds."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from loopline_simulator.__main__ import main
from loopline_simulator.drawing import KINDS
from loopline_simulator.experiments import EXPERIMENTS, users
from loopline_simulator.experiments.answers import write_csv

LOG = "".join(f"{number} {100 * number} 0 300 2\n" for number in range(1, 7))
SMALL = {
    "no-passing": "--jobs 3 --tasks 4 --pcs 4 --intervals 50 --policies fair first-come",
    "fair-start": "--jobs 3 --tasks 4 --pcs 4 --intervals 50 --policies fair --order hold",
    "report": "--only bound --minutes 0.000001",
    "full": "--policies fair --jobs 3 --machines 2",
    "trace": "--swf log.swf --policies fair --pcs 3 --patterns steady",
    "rack": "--scenarios 2 --algorithms naive --jobs 20 --loads 0.5 --width 8 --height 8",
    "transfer": "--hosts 4 --switches 2 --files 2 --copies 1 --strategies blind master-only",
    "dynamic-load": "--jobs 30 --loads 0.5 --pcs 3 --policies turnaround",
    "users": "--policies first-come",
    "global-computing": "--tables 3 --readings fitted --schedulers GRR",
}
SLOW = {"report", "users", "global-computing"}
NAMES = [pytest.param(name, marks=[pytest.mark.campaign] if name in SLOW else []) for name in SMALL]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.swf").write_text(LOG)
    return tmp_path


def _run(name: str, *more: str) -> int:
    return main([name, *SMALL[name].split(), "--seeds", "2", "--processes", "1", *more])


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_each_experiment_is_tested() -> None:
    assert SMALL.keys() == EXPERIMENTS.keys() - {"what-if"}  # it has one answer, and no runs


@pytest.mark.parametrize("kind", ["unknown", "assign", "rounds"])
def test_each_kind_of_transfer_is_kept(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL["transfer"].split(), f"--{kind}", "--seeds", "1", "--processes", "1", "--keep", "runs.jsonl"]
    for _ in range(2):
        assert main(["transfer", *words, "--csv"]) == 0
        (folder / f"{len(list(folder.glob('*.csv')))}.csv").write_text(capsys.readouterr().out)
    first, second = ((folder / f"{number}.csv").read_text() for number in range(2))
    assert first == second != ""


@pytest.mark.parametrize("name", NAMES)
def test_folder_has_tables_runs_and_the_same_csv(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(name, "--csv", "--out", "new/out", "--keep", "runs.jsonl") == 0
    printed = capsys.readouterr()
    assert "runs of each setting give wide intervals" in printed.err
    rows, out = _read(printed.out), folder / "new" / "out"
    assert rows
    assert _read((out / f"{name}.csv").read_text()) == rows
    assert {row["seed"] for row in rows} <= {"1", "2", "301", "302"}
    document = json.loads((out / f"{name}.json").read_text())
    assert document["experiment"] == name
    assert len(document["runs"]) == len(rows)
    assert (out / f"{name}.txt").exists() or (out / "study.md").exists()
    kept = (folder / "runs.jsonl").read_text()
    assert _run(name, "--csv", "--keep", "runs.jsonl") == 0
    assert _read(capsys.readouterr().out) == rows
    assert (folder / "runs.jsonl").read_text() == kept, "nothing was run again"


def test_pictures_are_in_the_folder_too(folder: Path) -> None:
    assert _run("transfer", "--out", "out") == 0
    assert {f"transfer-links.{kind}" for kind in KINDS} <= {file.name for file in (folder / "out").iterdir()}


def test_interrupted_sweep_continues(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[users.UsersCase] = []
    monkeypatch.setattr(users, "_COMPUTERS", 2)
    monkeypatch.setattr(users, "_JOBS", 3)
    run = users.run

    def counting(case: users.UsersCase) -> users.UsersAnswer:
        if len(counted) == 2:
            raise KeyboardInterrupt
        counted.append(case)
        return run(case)

    monkeypatch.setattr(users, "run", counting)
    assert _run("users", "--keep", "runs.jsonl") == 130
    kept = (folder / "runs.jsonl").read_text()
    (folder / "runs.jsonl").write_text(kept + kept[:50])  # as if it had been killed
    monkeypatch.setattr(users, "run", run)
    assert _run("users", "--keep", "runs.jsonl", "--out", "out") == 0
    assert (folder / "runs.jsonl").read_text().startswith(kept)
    assert _run("users", "--out", "other") == 0
    assert (folder / "out" / "users.csv").read_text() == (folder / "other" / "users.csv").read_text()


@pytest.mark.parametrize("content", ["no JSON\n", "{}\n", "[1]\n"])
def test_file_of_another_kind_is_refused(content: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other").write_text(content)
    assert _run("transfer", "--keep", "other") == 1
    assert "this is no file of runs" in capsys.readouterr().err
    assert (folder / "other").read_text() == content


def test_json_and_csv_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("transfer", "--json", "--csv") == 2
    assert "--out DIR writes both" in capsys.readouterr().err


def test_folder_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("transfer", "--out", "log.swf") == 1
    assert "log.swf" in capsys.readouterr().err


def test_many_seeds_come_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer", *SMALL["transfer"].split(), "--seeds", "5", "--processes", "1"]) == 0
    assert "intervals" not in capsys.readouterr().err


def test_csv_has_a_column_for_each_nested_figure() -> None:
    text = StringIO()
    write_csv([{"a": {"mean": 1.5, "of": [1, 2]}}, {"a": {"mean": None}, "b": "x,y"}], text)
    assert text.getvalue() == 'a.mean,a.of.1,a.of.2,b\n1.5,1,2,\n,,,"x,y"\n'
