"""What the agent and its launcher load: nothing of the master's, nothing for people, nothing before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AGENT = """
from worker import __main__, agent, home, settings, whereabouts
import worker.launch.posix, worker.owner.server, worker.presence.available
import worker.presence.logind, worker.presence.mutter, worker.presence.terminals, worker.presence.x11
"""
NOT_IN_THE_AGENT = {
    "sqlalchemy", "alembic", "prometheus_client", "sortedcontainers",  # the master's
    "rich", "cyclopts", "loopline", "master",  # the command line's
    "aiohttp", "jeepney", "html", "importlib.metadata", "email", "zipfile", "multiprocessing",
    "zeroconf", "xmlrpc", "unittest",
    "shared.api", "shared.spec",  # REST bodies and jobs: an agent sees neither
}  # fmt: skip
NOT_IN_THE_LAUNCHER = {
    "asyncio", "aiohttp", "pydantic", "psutil", "ssl", "dataclasses", "inspect", "pathlib", "subprocess", "traceback",
    "logging", "hashlib", "random", "shared", "worker.limits",
}  # fmt: skip


def loaded(code: str, *flags: str) -> set[str]:
    script = f"import sys; sys.path.append({str(ROOT)!r})\n{code}\nprint(*sys.modules)"
    return set(subprocess.check_output([sys.executable, *flags, "-c", script], text=True, cwd="/").split())


def test_the_agent_is_light() -> None:
    assert loaded(AGENT) & NOT_IN_THE_AGENT == set()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no launcher process")
def test_the_launcher_which_is_copied_for_every_task_is_lighter() -> None:
    assert loaded("import worker.launch.zygote", "-I", "-S") & NOT_IN_THE_LAUNCHER == set()
