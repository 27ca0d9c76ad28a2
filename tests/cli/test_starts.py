"""What a command imports before it does anything: help and errors of usage need no library of requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loopline.cli.app import COMMANDS
from loopline.local.local_grid import LocalGrid, reserved
from tests.cli.test_commands import PASSED_ON

SLOW_HELP = {
    "demo", "elastic", "fetch", "join", "leave", "login", "logout", "run", "service", "tls", "token", "top"
}  # fmt: skip
"""Commands that import their libraries even for help: few people run them, and rarely."""
PROGRAM = """
import contextlib, importlib, io, sys
from loopline.cli.__main__ import main
slow = {"aiohttp", "pydantic", "ruamel.yaml", "rich.progress", "loopline_shared.model", "loopline_shared.spec"}
slow |= {"markdown_it", "pygments", "rich.markdown"}
commands, modules = %r
for words in (["--help"], *([name, "--help"] for name in commands)):
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(words) == 0, words
    executed = {name for name, module in sys.modules.items() if "_late_loader" not in vars(module)}
    assert not slow & executed, (words, slow & executed)
for name in modules:
    importlib.import_module(name)
heavy = {"loopline_master", "loopline_worker", "sqlalchemy", "psutil"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_imports_no_library_of_requests() -> None:
    commands = sorted(COMMANDS.keys() - PASSED_ON - SLOW_HELP)
    modules = sorted({path.split(":")[0] for _, path, _ in COMMANDS.values()})
    program = PROGRAM % ((commands, modules),)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "imports",
    [
        "import loopline.cli.__main__, loopline.cli.local",
        "from loopline import Executor; import loopline.local.owned_grid",
    ],
)
def test_local_grid_is_started_before_its_client_is_imported(imports: str) -> None:
    slow = "{'aiohttp', 'pydantic', 'loopline_shared.model'}"
    executed = "{name for name, module in sys.modules.items() if '_late_loader' not in vars(module)}"
    program = f"import sys; {imports}; print({slow} & {executed})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def test_programs_of_users_import_no_blocker() -> None:
    """It takes pydantic's plug-ins, and aiohttp's trust in certificate authorities, from the whole program."""
    uses = "[getattr(loopline, each) for each in dir(loopline)]; loopline.Executor('http://127.0.0.1:1').shutdown()"
    program = (
        f"import sys, loopline; {uses}; print(*(each for each in sys.modules if 'loopline_shared.terminal' in each))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "\n"


@pytest.mark.parametrize(("name", "daemon"), [("master", "master"), ("here", "worker 'here'")])
def test_daemon_that_did_not_start_is_named(name: str, daemon: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.log").write_text("it is broken\n")
    error = LocalGrid(tmp_path, reserved()).failure(name)
    assert error.message == f"the {daemon} of this grid has failed; it said:\n  it is broken"
