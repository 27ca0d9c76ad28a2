"""To its caller, a forked command behaves like a started one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import starting

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere commands are started")


def test_forked_command_has_the_same_output_and_exit_code(tmp_path: Path) -> None:
    forked, started = (
        subprocess.run([*start, "replay", "--", "none.db"], cwd=tmp_path, capture_output=True, text=True, check=False)
        for start in (starting("loopline"), [sys.executable, "-m", "loopline"])
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert (forked.returncode, "none.db" in forked.stderr) == (2, True)


def test_forked_command_has_the_folder_and_streams_of_its_caller(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("[1]")
    for words, given in ((["--compact", "one.json"], None), (["--compact"], "[1]")):
        done = subprocess.run(
            [*starting("json.tool"), *words], cwd=tmp_path, input=given, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "[1]\n", "")
    done = subprocess.run([*starting("json.tool"), "two.json"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "two.json" in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_forked_command_leaves_no_process_after_a_signal(signum: signal.Signals) -> None:
    command = starting("tests.says_ready")
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL) as running:
        assert running.stdin
        assert running.stdout
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signum)
        assert running.stdout.read() == b"", "end of file after all processes have closed it, while stdin stays open"
        assert running.wait() == -signum


FORKS_ITSELF = """
import subprocess, sys
import tests.campaign
from tests.warm import python_as_this_process
code = "import sys; print(sys.stdin.readline() + __name__, 'tests.campaign' in sys.modules)"
done = subprocess.run([*python_as_this_process(), "-u", "-c", code], input="asked\\n", capture_output=True, text=True)
print([done.returncode, done.stdout, done.stderr])
"""


def test_fork_has_the_imports_and_runs_code_like_a_new_process() -> None:
    """In a process without threads, like the first of a run: a fork of a threaded process may deadlock."""
    done = subprocess.run([sys.executable, "-c", FORKS_ITSELF], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[0, 'asked\\n__main__ True\\n', '']\n", "")
