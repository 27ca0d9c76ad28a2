"""Somebody who has just installed Loopline, in a home of his own, types what a page says."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loopline.local.local_grid import reserved
from tests.docs.console import Step, missing

IN_A_TERMINAL_OF_ITS_OWN = ("loopline master", "loopline worker", "loopline local")
DONE_ALREADY = ("pip install",)


class Terminal:
    def __init__(self, home: Path, loopline: Sequence[str], serving: Sequence[str], python: str) -> None:
        """``loopline``: the words that its command stands for; ``serving``: in terminals of their own."""
        self.home = self.folder = home
        self._starts = shlex.join(serving)
        self._serving: list[subprocess.Popen[bytes]] = []
        self._reserved = reserved()
        self.port = self._reserved.number
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG")}
        for name in [name for name in self.environment if name.startswith("LOOPLINE")]:
            del self.environment[name]
        self.environment |= {
            "HOME": str(home),
            "PATH": f"{self._programs(loopline, python)}:{os.environ['PATH']}",
            "LOOPLINE_PORT": str(self.port),
            "LOOPLINE_MASTER": f"http://127.0.0.1:{self.port}",
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
            _, output = self.run(step.command)
            assert (line := missing(step, output)) is None, f"$ {step.command}\n{output}\n-- has no line: {line}"

    def run(self, command: str, seconds: float = 100.0) -> tuple[int, str]:
        """Return the exit code, and the output to stdout and stderr."""
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=-1, stderr=-2, timeout=seconds,
        )  # fmt: skip
        return done.returncode, done.stdout.decode(errors="replace").replace(str(self.port), "7461")

    def leave(self) -> None:
        for process in reversed(self._serving):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        self._reserved.release()

    def _serve(self, step: Step) -> None:
        log = self.home / f"{len(self._serving)}.log"
        with log.open("wb") as file:
            port = ""
            if step.command == "loopline local":  # which reserves its port itself
                self._reserved.release()
                port = f" --port {self.port}"
            words = ["sh", "-c", f"exec {self._starts}{step.command.removeprefix('loopline')}{port}"]
            process = subprocess.Popen(words, cwd=self.home, env=self.environment, stdout=file, stderr=file)
        self._serving.append(process)
        until = time.monotonic() + 100
        while line := missing(step, log.read_text().replace(str(self.port), "7461")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, f"$ {step.command}\n{log.read_text()}\n-- has no line: {line}"
            time.sleep(0.02)  # polls

    def _programs(self, loopline: Sequence[str], python: str) -> Path:
        """What installing puts on the path."""
        folder = self.home / "bin"
        folder.mkdir()
        for name, words in (("loopline", loopline), ("python3", [python])):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o755)
        return folder


@contextmanager
def terminal(
    home: Path, loopline: Sequence[str], serving: Sequence[str] = ("loopline",), python: str = sys.executable
) -> Iterator[Terminal]:
    one = Terminal(home, loopline, serving, python)
    try:
        yield one
    finally:
        one.leave()
