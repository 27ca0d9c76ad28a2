"""The tutorial, done as it stands: a real master and a real worker, every command, what each of them prints."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopline.cli.submission import job_file
from loopline.cli.submission.inputs import FileOptions, read
from loopline_shared.spec import JobSpec
from tests.docs.console import Step, missing, steps

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IN_A_TERMINAL_OF_ITS_OWN = ("loopline master", "loopline worker")
DONE_ALREADY = ("pip install",)


class Terminal:
    """Somebody who has just installed Loopline, in a home of his own, types what the page says."""

    def __init__(self, home: Path) -> None:
        self.home = self.folder = home
        self._serving: list[subprocess.Popen[bytes]] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG")}
        for name in [name for name in self._environment if name.startswith("LOOPLINE")]:
            del self._environment[name]
        self._environment |= {
            "HOME": str(home),
            "PATH": f"{self._programs()}:{os.environ['PATH']}",
            "LOOPLINE_PORT": str(self._port),
            "LOOPLINE_MASTER": f"http://127.0.0.1:{self._port}",
            "LOOPLINE_CONFIG": os.devnull,
        }

    def type(self, step: Step) -> None:
        if step.command.startswith(DONE_ALREADY):
            return
        if step.command.startswith("cd "):
            self.folder = self.folder / step.command[3:]
        elif step.command.startswith(IN_A_TERMINAL_OF_ITS_OWN):
            self._serve(step)
        else:
            output = self.run(step.command)
            assert (line := missing(step, output)) is None, f"$ {step.command}\n{output}\n-- has no line: {line}"

    def run(self, command: str) -> str:
        """What it prints, to stdout and stderr."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self._environment, stdout=-1, stderr=-2, timeout=100
        )
        return done.stdout.decode().replace(str(self._port), "7461")

    def leave(self) -> None:
        for process in reversed(self._serving):
            process.send_signal(signal.SIGTERM)
            process.wait(20)

    def _serve(self, step: Step) -> None:
        log = self.home / f"{len(self._serving)}.log"
        with log.open("wb") as file:
            words = ["sh", "-c", f"exec {step.command}"]
            process = subprocess.Popen(words, cwd=self.home, env=self._environment, stdout=file, stderr=file)
        self._serving.append(process)
        until = time.monotonic() + 30
        while line := missing(step, log.read_text().replace(str(self._port), "7461")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, f"$ {step.command}\n{log.read_text()}\n-- has no line: {line}"
            time.sleep(0.02)

    def _programs(self) -> Path:
        """What installing puts on the path."""
        folder = self.home / "bin"
        folder.mkdir()
        for name, words in (("loopline", "-m loopline"), ("python3", "")):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            program.chmod(0o755)
        return folder


@contextmanager
def terminal(home: Path) -> Iterator[Terminal]:
    one = Terminal(home)
    try:
        yield one
    finally:
        one.leave()


def test_every_step_comes_to_what_the_page_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with terminal(tmp_path) as one:
        for step in steps(DOCS / "tutorial.md"):
            one.type(step)
        assert "0 order violations" in one.run("loopline passing")
        (database,) = tmp_path.rglob("loopline.db")
        assert "log and rows agree" in one.run(f"loopline replay '{database}'")
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


def test_the_python_of_the_page_about_sweeps_is_python() -> None:
    page = (DOCS / "sweeps.md").read_text("utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "docs/sweeps.md", "exec"), {})
