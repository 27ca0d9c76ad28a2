"""A user without HOME and without an entry in passwd, as in containers, gets an error of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = """
import os, pwd, sys
for name in [name for name in os.environ if name == "HOME" or name.startswith(("XDG_", "LOOPLINE_"))]:
    del os.environ[name]
def getpwuid(uid): raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
from MODULE import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("module", "options"),
    [("loopline_worker.__main__", ["--master", "http://127.0.0.1:1"]), ("loopline_master.__main__", ["--port", "0"])],
)
def test_without_a_home_there_is_one_line_and_exit_code_2(tmp_path: Path, module: str, options: list[str]) -> None:
    command = [sys.executable, "-c", NOBODY.replace("MODULE", module), *options]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("error: this user has no home folder: HOME is not set")
    assert "Traceback" not in ended.stderr
    assert not [*tmp_path.iterdir()], "no folder is called ~"
