"""The tutorial, followed to the letter: a real master and a real worker, every command and its output.

The grid is started as users start it; commands to it are forked (tests/warm.py).
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from loopline.cli.submission import job_file
from loopline.cli.submission.inputs import read
from loopline.cli.submission.options import FileOptions
from loopline_shared.spec import JobSpec
from tests.docs.console import missing, steps
from tests.docs.terminal import terminal
from tests.warm import starting

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.timeout(600)  # a whole page of real starts: half a minute alone, two on a slow computer beside the suite
def test_every_step_has_the_output_on_the_page(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with terminal(tmp_path, starting("loopline"), (sys.executable, "-m", "loopline")) as one:
        for step in steps(DOCS / "tutorial.md"):
            one.type(step)
        assert "0 order violations" in one.run("loopline passing")[1]
        (database,) = tmp_path.rglob("loopline.db")
        assert "log and rows agree" in one.run(f"loopline replay '{database}'")[1]
    assert (tmp_path / "examples" / "nile" / "nile.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one; echo two 2\ntwo   2\n$ echo x 1.5s y\nx ... y\n...\n$ echo a\nb\n```\n")
    first, second, third = steps(page)
    assert [step.command for step in (first, second, third)] == ["echo one; echo two 2", "echo x 1.5s y", "echo a"]
    assert missing(first, "one\ntwo 2\n") is None
    assert missing(first, "two 2.0\n") == "two   2"
    assert missing(second, "x 1.5s y\nmore\n") is None
    assert missing(third, "a\n") == "b"


async def test_the_job_file_of_the_page_about_sweeps_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "sweeps.md").read_text("utf-8")
    text = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert text
    Path("job.yaml").write_text(text[1])
    Path("fit.py").touch()
    Path("data").mkdir()
    Path("data", "one").touch()
    file = job_file.read(Path("job.yaml"))
    found = await read(FileOptions(), file)
    spec = JobSpec.model_validate(found.named_in(file.document))
    assert (spec.task_count, spec.size, set(spec.inputs)) == (200, 7200, {"fit.py", "data/one"})


def test_the_python_of_the_page_about_sweeps_is_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOOPLINE_RESULT", str(tmp_path / "result.json"))
    page = (DOCS / "sweeps.md").read_text("utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "docs/sweeps.md", "exec"), {})
