"""A local file that the command names but no input includes gives a warning with the missing option."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline_shared.rest.bodies import Explanation, Preview, Reason, Submission
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok

WARNING = (
    "warning: pi.py is a file in this folder but not an input: tasks start in an empty folder; add --input pi.py\n"
)


@pytest.fixture(autouse=True)
def folder(fake: FakeMaster, nobodys_computer: None) -> None:
    for name in ("pi.py", "train", "src/run.py", "two words", "python3", "result.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
        Path(name).chmod(0o755)
    Path("data").mkdir()
    fake.on("POST /jobs", ok(Submission(id=1, task_count=1), 201))
    fake.on("POST /jobs/preview", ok(Preview(task_count=1, size=None, tasks=[], expected=None, warnings=[])))


def test_warning_is_printed_at_submission_and_in_a_dry_run(run: Run) -> None:
    for words in (["--dry-run"], []):
        ran = run("submit", *words, "--", "python3", "pi.py", "pi.py")
        assert (ran.code, ran.err) == (0, WARNING)
        assert "warning" not in ran.out
    ran = run("submit", "--json", "--", "python3", "pi.py")
    assert (ran.document["id"], ran.err) == (1, WARNING)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["./train"], "add --input train"),
        (["train"], "add --input train and write ./train"),
        (["python3", "./src/run.py"], "add --input src/run.py=src/run.py"),
        (["cat", "two words"], "add --input 'two words'"),
    ],
)
def test_suggested_option_puts_the_file_where_the_command_expects_it(
    fake: FakeMaster, run: Run, command: list[str], option: str
) -> None:
    assert run("submit", "--", *command).err.endswith(f"; {option}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--", "python3", "data", str(Path(__file__)), "../nobodys", "-c", "x" * 5000, ""],
        ["--output", "result.csv", "--", "python3", "-o", "result.csv"],
        ["--", "sh", "-c", "python3 pi.py"],
    ],
)
def test_other_words_give_no_warning(run: Run, words: list[str]) -> None:
    assert run("submit", "--dry-run", *words).err == ""


@pytest.mark.parametrize(
    "words",
    [
        ["--input", "pi.py", "--", "python3", "pi.py"],
        ["--input", "train", "--", "./train"],
        ["--input", "src/run.py=src/run.py", "--", "python3", "src/run.py"],
        ["--input", "src", "--", "python3", "src/run.py"],
    ],
)
def test_included_input_gives_no_warning(run: Run, words: list[str]) -> None:
    assert run("submit", "--dry-run", *words).err == ""


def test_input_under_another_name_still_gives_a_warning(run: Run) -> None:
    assert run("submit", "--dry-run", "--input", "pi.py=there.py", "--", "python3", "pi.py").err == WARNING


def test_local_modules_of_a_script_give_a_warning(run: Run) -> None:
    Path("pi.py").write_text("import json, helper, numpy\nfrom . import nobodys\n")
    Path("helper.py").write_text("def f():\n    from tools import saw\n")
    Path("tools").mkdir()
    for name, text in (("__init__", ""), ("saw", "import late"), ("late", ""), ("../late", "import pi, helper")):
        Path("tools", f"{name}.py").write_text(text)
    said = run("submit", "--dry-run", "--input", "pi.py", "--", "python3", "pi.py").err.splitlines()
    assert said == [
        "warning: pi.py imports helper.py, which is in this folder but not an input; add --input helper.py",
        "warning: helper.py imports tools/, which is in this folder but not an input; add --input tools",
        "warning: tools/saw.py imports late.py, which is in this folder but not an input; add --input late.py",
    ]
    inputs = ["--input", "pi.py", "--input", "helper.py", "--input", "tools/", "--input", "late.py"]
    assert not run("submit", "--dry-run", *inputs, "--", "python3", "pi.py").err


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("tools.saw", "tools is missing there: if it is yours, add --input tools.py (or tools/)"),
        ("loopline", "add a copy of its file checkpoint.py as --input checkpoint.py"),
    ],
)
def test_explain_suggests_an_input_for_a_missing_module(fake: FakeMaster, run: Run, module: str, advice: str) -> None:
    reason = Reason(code="failed", detail=f"exit code 1: ModuleNotFoundError: No module named '{module}'", count=3)
    explained = Explanation(subject="1", state="failed", sentence="3 of 3 tasks failed", reasons=[reason])
    fake.on("GET /jobs/1/explain", ok(explained))
    assert advice in run("explain", "1").out
