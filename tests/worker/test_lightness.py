"""What the agent and its launcher load: nothing of the master's, nothing for people, nothing before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOTS = [str(Path(__file__).parents[2] / root) for root in ("shared", "worker")]
AGENT = """
from loopline_worker import __main__, agent, discovery, settings
from loopline_worker.state import data_directory
import loopline_worker.launch.posix, loopline_worker.owner.server, loopline_worker.presence.idle_detector
from loopline_worker.presence import logind, mutter, terminals, x11
"""
NOT_IN_THE_AGENT = {
    "sqlalchemy", "alembic", "prometheus_client", "sortedcontainers",  # the master's
    "rich", "cyclopts", "loopline", "loopline_master",  # the command line's
    "aiohttp", "jeepney", "html", "importlib.metadata", "email", "zipfile", "multiprocessing",
    "zeroconf", "xmlrpc", "unittest", "tarfile",
    "loopline_shared.rest.bodies", "loopline_shared.spec",  # REST bodies and jobs: an agent sees neither
}  # fmt: skip
NOT_IN_THE_LAUNCHER = {
    "asyncio", "aiohttp", "pydantic", "psutil", "ssl", "dataclasses", "inspect", "pathlib", "subprocess", "traceback",
    "logging", "hashlib", "random", "loopline_shared", "loopline_worker.attempts.limits",
}  # fmt: skip


def loaded(code: str, *flags: str) -> set[str]:
    script = f"import sys; sys.path.extend({ROOTS!r})\n{code}\nprint(*sys.modules)"
    return set(subprocess.check_output([sys.executable, *flags, "-c", script], text=True, cwd="/").split())


def test_the_agent_is_light() -> None:
    assert loaded(AGENT) & NOT_IN_THE_AGENT == set()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no launcher process")
def test_the_launcher_which_is_copied_for_every_task_is_lighter() -> None:
    assert loaded("import loopline_worker.supervisor.zygote", "-I", "-S") & NOT_IN_THE_LAUNCHER == set()
