"""``loopline replay`` in real processes: verification of rows, and what-if runs."""

import asyncio
import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from loopline.cli.audit import replay
from loopline_master.store import open_store
from loopline_shared.errors import LooplineError
from loopline_simulator.__main__ import main as simulate
from tests.simulator.test_what_if_model import Log
from tests.store.workload import relive
from tests.warm import starting

ROOT = Path(__file__).parents[2]


def store(file: Path, lines: list[bytes]) -> Path:
    async def live() -> None:
        async with open_store(f"sqlite:///{file}") as opened:
            await relive(opened, lines)

    asyncio.run(live())
    return file


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = Log("round-robin")
    log.join("ant")
    log.join("bee", speed=2.0)
    log.submit(10, 20, 30)
    log.submit(20, 20)
    while any(log.holding.values()):
        name = max(log.holding, key=lambda name: len(log.holding[name]))
        log.end(name, 7)
    return store(tmp_path_factory.mktemp("grid") / "loopline.db", log.lines)


def loopline(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*starting("loopline.cli"), "replay", *map(str, words)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE")}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60, check=False)


@pytest.mark.campaign
def test_replay_with_another_policy(grid: Path) -> None:
    done = loopline(grid, "--policy", "first-come", "--order", "none", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["recorded"]["policy"], document["what_if"]["policy"]) == ("round-robin", "first-come")
    assert [job["what_if"]["state"] for job in document["jobs"]] == ["succeeded", "succeeded"]
    rows = [*csv.DictReader(loopline(grid, "--policy", "first-come", "--csv").stdout.splitlines())]
    assert [row["what_if.state"] for row in rows] == ["succeeded", "succeeded"]


@pytest.mark.campaign
def test_replay_with_one_more_job(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.json").write_text('{"name": "new", "command": ["x"], "size": 60}')
    done = loopline(grid, "--what-if-submit", tmp_path / "job.json", "--seeds", 3)
    assert (done.returncode, done.stderr) == (0, "")
    assert "would end in" in done.stdout
    assert simulate(["what-if", "--what-if-submit", str(tmp_path / "none.json"), "--json"]) == 2
    assert "No such file" in json.loads(capsys.readouterr().err)["error"]["message"]


@pytest.mark.campaign
def test_log_can_be_written_and_read_from_a_file(
    grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = loopline(grid, "--events")
    assert all(json.loads(line)["events"] for line in written.stdout.splitlines())
    (tmp_path / "log").write_text(written.stdout)
    assert simulate(["what-if", str(tmp_path / "log"), "--policy", "first-come"]) == 0
    told = capsys.readouterr().out
    assert "mean wait" in told
    assert "first-come" in told
    (tmp_path / "log").write_text(written.stdout[:-30])
    assert simulate(["what-if", str(tmp_path / "log")]) == 1
    assert "breaks off in line" in capsys.readouterr().err


def test_csv_needs_a_question() -> None:
    with pytest.raises(LooplineError, match="--csv is about what would have been"):
        replay("grid.db", csv=True)


def test_writing_the_log_excludes_what_if_options() -> None:
    with pytest.raises(LooplineError, match="--events writes the log as it is"):
        replay("grid.db", events=True, policy="first-come")


def test_rows_are_compared_with_the_log(grid: Path) -> None:
    assert loopline(grid).stdout == "log and rows agree\n"


def test_error_for_an_unknown_policy_suggests_a_similar_one(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = loopline(grid, "--policy", "first-com")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean first-come?" in done.stderr
    assert simulate(["what-if", "--order", "held"]) == 2
    assert "there is no order 'held'" in capsys.readouterr().err


def test_unreadable_and_empty_databases_are_errors(tmp_path: Path) -> None:
    done = loopline(tmp_path / "none.db", "--policy", "first-come")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no database" in done.stderr
    assert "the log is" not in done.stderr
    done = loopline(store(tmp_path / "empty.db", []), "--policy", "first-come")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the log is empty" in done.stderr
