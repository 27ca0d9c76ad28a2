"""Imports of the agent and its launcher: no master code, no user interface, no module before it is needed."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.presence.witnesses import bus

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
    "loopline_shared.rest.bodies", "loopline_shared.spec", "loopline_shared.job",  # not of agents
}  # fmt: skip
NOT_IN_THE_LAUNCHER = {
    "asyncio", "aiohttp", "pydantic", "psutil", "ssl", "dataclasses", "inspect", "pathlib", "subprocess", "traceback",
    "logging", "hashlib", "random", "loopline_shared", "loopline_worker.attempts.limits",
}  # fmt: skip

NOT_IN_THE_REPORTER = {
    "asyncio", "ssl", "dataclasses", "inspect", "logging", "concurrent.futures", "threading", "subprocess", "pathlib",
    "pydantic", "psutil", "loopline_shared", "loopline_worker.task_group", "loopline_worker.settings",
}  # fmt: skip
IN_THE_REPORTER = {"jeepney", "loopline_worker.presence.bus", "loopline_worker.presence.waiting.poll_loop"}


def loaded(code: str, *flags: str) -> set[str]:
    script = f"import sys; sys.path.extend({ROOTS!r})\n{code}\nprint(*sys.modules)"
    return set(subprocess.check_output([sys.executable, *flags, "-c", script], text=True, cwd="/").split())


def test_agent_imports_few_modules() -> None:
    assert loaded(AGENT) & NOT_IN_THE_AGENT == set()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no launcher process")
def test_launcher_imports_fewer_modules_than_the_agent() -> None:
    assert loaded("import loopline_worker.supervisor.zygote", "-I", "-S") & NOT_IN_THE_LAUNCHER == set()


@pytest.mark.skipif(sys.platform != "linux", reason="desktops of Linux start reporters")
async def test_reporter_imports_fewer_modules_than_the_agent(tmp_path: Path) -> None:
    """The real program, with a bus to query, runs until it has reported; Python lists its imports."""
    pytest.importorskip("jeepney")
    reports, has_reported = [], asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reports.append(json.loads(await reader.readuntil()))
        has_reported.set()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "sessions")
    words = ("-P", "-X", "importtime", "-m", "loopline_worker.presence", f"{tmp_path}/sessions")
    with bus() as address:
        environment = {"PYTHONPATH": os.pathsep.join(ROOTS), "DBUS_SESSION_BUS_ADDRESS": address}
        reporter = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=environment, stderr=asyncio.subprocess.PIPE
        )
        await has_reported.wait()
        reporter.terminate()
        _, imported = await reporter.communicate()
    server.close()
    modules = {line.rpartition("|")[2].strip() for line in imported.decode().splitlines()}
    assert reports[0]["do"] == "report"
    assert modules >= IN_THE_REPORTER
    assert modules & NOT_IN_THE_REPORTER == set()
