"""Files that a command names are offered as inputs in a terminal, or all included; with --cwd none is needed."""

from __future__ import annotations

import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from loopline_shared.rest.bodies import Preview, Submission
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok, page
from tests.cli.views import worker
from tests.warm import starting

COMMAND = ["--", "python3", "pi.py", "src/data.csv"]


@pytest.fixture(autouse=True)
def folder(fake: FakeMaster, nobodys_computer: None) -> None:
    for name in ("pi.py", "src/data.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1), 201))
    fake.on("POST /jobs/preview", ok(Preview(task_count=1, size=None, tasks=[], expected=None, warnings=[])))
    fake.on(f"HEAD /files/{empty}", ok(b""))


def submitted_inputs(fake: FakeMaster) -> set[str]:
    (seen,) = fake.asked("POST /jobs")
    return set(seen.body.get("inputs", {}))


def at_a_terminal(fake: FakeMaster, answers: str, *words: str) -> str:
    """Return the terminal's output for a user who types these answers."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*starting("loopline"), "submit", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "LOOPLINE_MASTER": fake.url},
    ) as running:  # fmt: skip
        os.close(theirs)
        os.write(ours, answers.encode())
        seen = b""
        with suppress(OSError):  # the other side is closed
            while piece := os.read(ours, 10_000):
                seen += piece
        assert running.wait(60) == 0, seen
    os.close(ours)
    return seen.decode()


def test_accepted_file_becomes_an_input(fake: FakeMaster) -> None:
    seen = at_a_terminal(fake, "\nn\n", *COMMAND)
    assert "add pi.py as an input? [Y/n]" in seen
    assert "add src/data.csv as an input? [Y/n]" in seen
    assert submitted_inputs(fake) == {"pi.py"}
    assert "warning: src/data.csv is a file in this folder but not an input" in seen.replace("\r\n", " ")
    assert "warning: pi.py" not in seen


def test_missing_answer_counts_as_no(fake: FakeMaster) -> None:
    at_a_terminal(fake, "\x04\x04", *COMMAND)
    assert submitted_inputs(fake) == set()


def test_dry_run_and_json_do_not_prompt(fake: FakeMaster) -> None:
    for option in ("--dry-run", "--json"):
        seen = at_a_terminal(fake, "", option, *COMMAND)
        assert "[Y/n]" not in seen
        assert "add --input pi.py" in " ".join(seen.split())


def test_auto_includes_all_files(fake: FakeMaster, run: Run) -> None:
    ran = run("submit", "--input", "auto", *COMMAND)
    assert (ran.code, ran.err) == (0, "")
    assert submitted_inputs(fake) == {"pi.py", "src/data.csv"}


def test_cwd_needs_no_inputs(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    fake.on("GET /workers", page(worker("ant", folders=(str(tmp_path.parent),))))
    ran = run("submit", "--cwd", *COMMAND)
    assert (ran.code, ran.err) == (0, "")
    (seen,) = fake.asked("POST /jobs")
    assert seen.body["requires"] == {"folder": str(tmp_path)}


def test_folder_that_each_task_has_of_its_own_is_refused(
    fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/tmp")
    fake.on("GET /workers", page(worker("ant", folders=("/tmp",))))
    ran = run("submit", "--cwd", *COMMAND)
    assert ran.code == 2
    assert "/tmp cannot be shared: each task has its own in a sandbox" in ran.err


def test_folder_that_no_worker_shares_is_refused_with_a_reason(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    fake.on("GET /workers", page(worker("ant"), worker("bee", folders=(f"{tmp_path}-other",))))
    ran = run("submit", "--cwd", *COMMAND)
    assert ran.code == 2
    assert f"no worker shares {tmp_path}: they share {tmp_path}-other" in ran.err.replace("\n", " ")
    assert not fake.asked("POST /jobs")
    assert "leave --input and --output out" in run("submit", "--cwd", "--output", "x", *COMMAND).err
