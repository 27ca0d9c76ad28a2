"""Every command line in a fenced block of the README and of docs/ runs as it is printed, on a real grid.

The others are listed by rule, each with its reason: a rule that matches no line any more fails.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loopline import Client
from tests.docs.console import Step, typed
from tests.docs.terminal import Terminal, terminal
from tests.warm import starting

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STEP_BY_STEP = {"tutorial.md": "test_tutorial.py types it, and reads what comes"}
ELSEWHERE = {
    r"pip install|py -m venv|\.venv\\": "installs from a package index, or on Windows: tests/packaging",
    r"make (demo|test)\b": "is the demo (tests/cli/test_demo.py), and this suite",
    r"docker ": "needs a Docker engine: make test-compose",
    r"loopline master --host 0\.0\.0\.0": "listens beyond this computer; tests/api/test_main.py has what it refuses",
    r"loopline join ": "another computer's: tests/cli/test_joining.py",
    r"loopline (backup|restore|fsck)\b": "for a master's own user: tests/store/test_backup.py",
    r"loopline service ": "changes this computer's services: tests/cli/test_service.py",
    r"loopline submit --nodes ": "needs several workers: tests/live/test_gangs.py",
    r"loopline master --database-url ": "needs a PostgreSQL: tests/live/test_postgres.py",
    r"loopline master --files ": "needs an object storage: tests/live/test_object_storage.py",
    r"loopline worker --until ": "a second agent of the reader's: tests/worker/test_departure.py",
    r"loopline elastic ": "asks a cluster, or goes on for ever: tests/cli/test_elastic.py, tests/live/test_slurm.py",
    r"loopline run ": "needs several workers: tests/live/test_engines.py",
    r"loopline submit --(requirements|image) ": "needs a package index or an image: tests/live/test_environments.py",
    r"snakemake ": "make test-snakemake",
    r"loopline simulate (global-computing|rack|no-passing|full|report|users)\b": "takes minutes: see tests/simulator",
}
"""Beginnings of lines that are not run here, and why."""

QUICK = {"README.md", "files.md", "sweeps.md"}
"""Pages whose commands `make test` types; those of the others are typed by the long run."""
COMMANDS = [(page.name, block) for page in PAGES if page.name not in STEP_BY_STEP for block in typed(page)]
SWF = "; a log in the Standard Workload Format\n1 0 0 60 1 -1 -1 1 60 -1 1 1 1 1 1 -1 -1 -1\n"


def reason(line: str) -> str | None:
    return next((why for rule, why in ELSEWHERE.items() if re.match(rule, line)), None)


def files_of_the_reader(folder: Path) -> None:
    scripts = dict.fromkeys(("train", "convert", "model", "download"), "#!/bin/sh\n")
    leaves = "open('result.csv', 'w')"
    programs = {
        **dict.fromkeys(("pi.py", "solve.py", "bench.py", "train.py"), ""),
        "fit.py": leaves,
        "run.py": leaves,
    }
    texts = {
        "settings.csv": "lr,seed\n0.1,7\n", "data/one": "1\n", "model.bin": "model", "a.wav": "", "log.swf": SWF,
        "job.toml": 'command = "true"\nsize = 60\n',
    }  # fmt: skip
    for name, text in {**programs, **scripts, **texts}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    page = (ROOT / "docs" / "sweeps.md").read_text("utf-8")
    (job,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (folder / "job.yaml").write_text(job)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal with a master and a worker, twelve finished jobs, and the files that the pages name.

    The last of these jobs has the three tasks that the pages mention. The programs are empty shell scripts, which
    start faster than Python and still fail if a task does not find them.
    """
    home = tmp_path_factory.mktemp("home")
    with terminal(home, starting("loopline"), python="sh") as one:
        one.environment |= {
            "MASTER": one.environment["LOOPLINE_MASTER"],
            "LOOPLINE_NOTIFY_COMMANDS": '{"mail": ["true"]}',
        }
        one.type(Step("loopline master", ["...serves at http://127.0.0.1:7461"]))
        shared = f"--shared-folder {home / 'work'}"
        one.type(
            Step(f"loopline worker --dedicated --slots 2 {shared}", ["...connected to http://127.0.0.1:7461..."])
        )
        master = home / ".local" / "share" / "loopline" / "master"
        one.environment["TOKEN"] = (master / "tokens" / "admin").read_text().strip()
        one.folder = home / "work"
        one.folder.mkdir()
        files_of_the_reader(one.folder)
        with Client(one.environment["LOOPLINE_MASTER"], one.environment["TOKEN"]) as client:
            for _ in range(11):
                client.run(["true"])
            assert client.submit(["echo", "{n}"], parameters={"n": [1, 2, 3]}).wait().id == 12
        database = master / "loopline.db"
        with closing(sqlite3.connect(database)) as rows, closing(sqlite3.connect(one.folder / "loopline.db")) as copy:
            rows.backup(copy)
        yield one


def wait_for_jobs(reader: Terminal) -> None:
    """Wait until all jobs of earlier blocks are over, so that the next one is not held behind them with a warning."""
    with Client(reader.environment["LOOPLINE_MASTER"], reader.environment["TOKEN"]) as client:
        for view in client.jobs():
            if view.finished_at is None:
                client.attach(view.id).wait(60)


@pytest.mark.parametrize(
    ("page", "block"),
    [pytest.param(*each, marks=() if each[0] in QUICK else pytest.mark.campaign) for each in COMMANDS],
    ids=lambda part: part if isinstance(part, str) else part[0],
)
def test_it_runs_as_it_is_printed(reader: Terminal, page: str, block: list[str]) -> None:
    lines = [line.replace("http://127.0.0.1:7461", "$MASTER") for line in block if not reason(line)]
    if not lines:
        pytest.skip("; ".join(sorted({reason(line) or "" for line in block})))
    wait_for_jobs(reader)
    code, said = reader.run("set -x\n" + "\n".join(lines))
    assert code == 0, said
    assert "warning:" not in said


def test_every_rule_is_of_use() -> None:
    lines = [line for _, block in COMMANDS for line in block]
    assert [rule for rule in ELSEWHERE if not any(re.match(rule, line) for line in lines)] == []


def test_no_page_is_left_out(tmp_path: Path) -> None:
    assert {"README.md", "files.md", "sweeps.md", "watching.md", "what-if.md", "simulator.md"} <= {
        p for p, _ in COMMANDS
    }
    page = tmp_path / "page.md"
    page.write_text(
        "```\nloopline jobs   # all\nno command\n```\n```console\n$ echo a \\\n  b\na b\n```\n```python\nls\n```\n"
    )
    assert list(typed(page)) == [["loopline jobs   # all"], ["echo a    b"]]


def test_a_command_that_fails_is_noticed(reader: Terminal) -> None:
    assert shutil.which("curl")
    code, _ = reader.run("loopline job 999\nloopline jobs")
    assert code == 3
