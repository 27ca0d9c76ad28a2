"""Sweeps printed in the README, docs/ and --help: each includes the reader's own program as an input."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from loopline.cli.submission.submit import submit
from loopline_shared.rest.bodies import Preview
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok
from tests.cli.fake_master import page as page_of
from tests.cli.views import worker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN = re.compile(r"\./\w+|\w+\.py")
"""A program of the reader's, as a word of a command."""


def printed(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the options and the command of each ``loopline submit`` that runs a program of the reader's."""
    for line in re.findall(r"loopline submit ([^`#|)\n]* -- [^`#|)\n]*)", text):
        words = shlex.split(line)
        end = words.index("--")
        options, command = [word for word in words[:end] if word != "--dry-run"], words[end:]
        if any(map(OWN.fullmatch, command)):
            yield options, command


LINES = [(page.name, *line) for page in PAGES for line in printed(page.read_text("utf-8"))]
LINES += [("--help", *line) for line in printed(submit.__doc__ or "")]


@pytest.fixture(autouse=True)
def files_of_the_reader(nobodys_computer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flow.csv", "model.bin", "data/a", "a.wav", "convert"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("settings.csv").write_text("lr,seed\n0.1,7\n")
    Path("requirements.txt").write_text("numpy\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.wav\n")))


@pytest.mark.parametrize(
    ("page", "options", "command"), LINES, ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_program_of_the_reader_is_an_input(
    fake: FakeMaster, run: Run, page: str, options: list[str], command: list[str]
) -> None:
    fake.on("POST /jobs/preview", ok(Preview(task_count=1, size=None, tasks=[], expected=None, warnings=[])))
    fake.on("GET /workers", page_of(worker("ant", folders=(Path.cwd().as_posix(),))))
    for word in filter(OWN.fullmatch, command):
        Path(word).touch()
    ran = run("submit", "--dry-run", *[word.replace("$first", "1") for word in options], *command)
    assert (ran.code, ran.err) == (0, "")


def test_first_sweep_of_the_readme_is_checked() -> None:
    first = next(options for page, options, _ in LINES if page == "README.md")
    assert ("--param", "seed=1..100") in pairwise(first)
    assert ("--input", "pi.py") in pairwise(first)
