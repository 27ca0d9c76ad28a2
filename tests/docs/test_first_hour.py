"""A newcomer's first hour, typed into a terminal of 80 columns and 24 lines, which tmux runs and records."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")]
COLUMNS, LINES = 80, 24
WITHIN_S = 60.0
ESTIMATE = "import sys\nn = int(sys.argv[1])\nif n == 3: sys.exit('no estimate for 3')\nprint(n * n)\n"


class Screen:
    """A terminal in which the test types and reads."""

    def __init__(self, path: Path, environment: dict[str, str]) -> None:
        self._socket, self._environment, self._commands = str(path), environment, 0
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "-c", environment["HOME"], "sh")

    def types(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self.presses("Enter")

    def presses(self, key: str) -> None:
        self._tmux("send-keys", key)

    def runs(self, command: str) -> str:
        """Return what a command prints."""
        self._commands += 1
        end = f"ended-{self._commands}"
        self._tmux("clear-history")
        self.types(f"clear; {command}; echo {end}")
        shown = "\n" + self.waits_for(f"^{end}$")
        return shown[: shown.index(f"\n{end}")].rpartition(f"echo {end}\n")[2].strip("\n")

    def waits_for(self, pattern: str) -> str:
        """Return the terminal's text, including lines scrolled away, once it matches."""
        until = time.monotonic() + WITHIN_S
        while not re.search(pattern, text := self._tmux("capture-pane", "-p", "-J", "-S", "-"), re.MULTILINE):
            assert time.monotonic() < until, f"waited in vain for {pattern!r}:\n{text}"
            time.sleep(0.05)  # polls
        assert "Traceback" not in text
        return text

    def ends(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True)
        return "\n".join(line.rstrip() for line in done.stdout.split("\n"))


@pytest.fixture
def screens(tmp_path: Path) -> Iterator[tuple[Screen, Screen]]:
    """Two terminals of one user after the installation of Loopline."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("loopline", "-m loopline"), ("python3", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LOOPLINE", "XDG", "TMUX"))}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
    }
    both = Screen(tmp_path / "one", environment), Screen(tmp_path / "other", environment)
    yield both
    for screen in both:
        screen.ends()


def fits(text: str) -> bool:
    """True if no line is wider than the terminal."""
    return all(len(line) <= COLUMNS for line in text.splitlines())


@pytest.mark.timeout(600)
def test_the_first_hour(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    screen, grid = screens
    (tmp_path / "estimate.py").write_text(ESTIMATE)
    with socket.socket() as probe:  # another grid may be at the usual port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    grid.types(f"loopline local --slots 2 --port {port}")
    grid.waits_for("Ctrl-C ends the grid")
    screen.runs(f"export LOOPLINE_MASTER=http://127.0.0.1:{port}")

    screen.types("loopline submit --wait --param n=1..6 -- python3 estimate.py {n}")
    screen.waits_for(r"add estimate\.py as an input\? \[Y/n\]")
    screen.presses("Enter")
    assert "5 of 6, 1 failed" in screen.waits_for("why: loopline explain 1")

    assert "no estimate for 3" in (why := screen.runs("loopline explain 1"))
    for command in ("jobs", "tasks 1", "job 1", "workers", "gantt 1", "history", "passing"):
        shown = screen.runs(f"loopline {command}")
        assert fits(shown), f"loopline {command}:\n{shown}"
    assert fits(why)
    assert "sys.exit" not in screen.runs("loopline logs 1.3 --stderr")
    (tmp_path / "estimate.py").write_text(ESTIMATE.replace("n == 3", "n == 0"))
    again = screen.runs("loopline submit --wait --only-failed-of 1 --input estimate.py -- python3 estimate.py {n}")
    assert "1 of 1" in again
    assert screen.runs("loopline results 2").strip() == "9"

    screen.types("loopline submit --wait --array 1-4 -- sleep 60")
    screen.waits_for("job 3")
    screen.presses("C-c")
    screen.waits_for("loopline job 3 --wait")  # how to come back
    screen.types("loopline top")
    assert fits(screen.waits_for("sleep"))
    screen.presses("C-c")
    screen.runs("loopline cancel 3")
    assert "did you mean" in screen.runs("loopline sumbit")

    grid.presses("C-c")
    grid.waits_for("the grid has ended")
