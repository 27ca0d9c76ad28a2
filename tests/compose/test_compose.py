"""The one-machine grid of docker-compose.yml, on a real container engine: ``make test-compose``."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener
from uuid import uuid4

import pytest

from loopline_shared.rest.trust import trusting

pytestmark = pytest.mark.timeout(1800)  # the first build downloads the base and every dependency

ROOT = Path(__file__).parents[2]
WORKERS = 4
TASKS = 8
TASKS_USERS = set(range(10101, 10165))
NO_POWER = "CapPrm:\t0000000000000000"
WHO_AND_WHERE = "import os, socket, time; time.sleep(1); print(os.getuid(), socket.gethostname())"


@dataclass(frozen=True)
class Grid:
    """One project of the compose file, under a name and on a port of its own."""

    tool: list[str]
    project: str
    port: int

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.tool, "--project-name", self.project, *arguments],
            cwd=ROOT, env={**os.environ, "LOOPLINE_PORT": str(self.port)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def must(self, *arguments: str) -> str:
        done = self.compose(*arguments)
        assert done.returncode == 0, f"compose {' '.join(arguments)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def inside(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        return self.compose("exec", "-T", "--user", "loopline", service, *command)

    @cached_property
    def token(self) -> str:
        return self.must("exec", "-T", "master", "cat", "/data/tokens/admin").strip()

    @cached_property
    def direct(self) -> OpenerDirector:
        """What opens addresses on this machine, whatever proxy is set, and knows the master by its CA."""
        ca = self.must("exec", "-T", "master", "cat", "/data/tokens/ca.pem")
        return build_opener(ProxyHandler({}), HTTPSHandler(context=trusting(ca)))

    def fetch(self, path: str, body: object = None) -> str:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with self.direct.open(Request(f"https://127.0.0.1:{self.port}{path}", data, headers), timeout=10) as answer:
            content: bytes = answer.read()
        return content.decode()

    def api(self, path: str, body: object = None) -> Any:
        return json.loads(self.fetch(f"/api/v1{path}", body))

    def until(self, what: str, holds: Callable[[], bool], within_s: float = 120) -> None:
        """Wait for a fact about the master, which may be away for a moment."""
        deadline = time.monotonic() + within_s
        while not _answered(holds):
            if time.monotonic() > deadline:
                logs = self.compose("logs", "--tail", "30").stdout
                pytest.fail(f"not within {within_s:g} s: {what}\n{logs}")
            time.sleep(0.5)

    def is_healthy(self) -> bool:
        return bool(self.fetch("/healthz"))

    def connected(self) -> int:
        return sum(worker["connected"] for worker in self.api("/workers")["items"])

    def outputs(self, job: int) -> list[str]:
        return [self.fetch(f"/api/v1/jobs/{job}/tasks/{n}/stdout") for n in range(1, TASKS + 1)]


@pytest.fixture(scope="module")
def grid() -> Iterator[Grid]:
    grid = Grid(_compose_tool(), f"loopline-test-{uuid4().hex[:8]}", _free_port())
    try:
        grid.must("build")
        grid.must("up", "--detach", "--scale", f"worker={WORKERS}")
        grid.until("the master answers", grid.is_healthy)
        grid.until(f"{WORKERS} workers", lambda: grid.connected() == WORKERS)
        yield grid
    finally:
        grid.compose("down", "--volumes", "--rmi", "local", "--timeout", "5")


@pytest.fixture(scope="module")
def job(grid: Grid) -> int:
    """A job that has succeeded, submitted from outside the containers."""
    command = ["python3", "-c", WHO_AND_WHERE]
    job: int = grid.api("/jobs", {"command": command, "parameters": {"i": {"range": [1, TASKS]}}})["id"]
    grid.until("the job succeeded", lambda: grid.api(f"/jobs/{job}")["state"] == "succeeded")
    return job


def test_tasks_run_on_several_workers_and_never_as_root(grid: Grid, job: int) -> None:
    users, hosts = zip(*(output.split() for output in grid.outputs(job)), strict=True)
    assert len(set(hosts)) > 1
    assert set(map(int, users)) <= TASKS_USERS


def test_the_command_line_in_the_master_needs_no_token(grid: Grid) -> None:
    done = grid.inside("master", "loopline", "submit", "--wait", "--", "hostname")
    assert done.returncode == 0, done.stdout


def test_a_worker_reads_its_own_token_and_nothing_of_the_master(grid: Grid) -> None:
    mine = grid.inside("worker", "cat", "/join/worker")
    assert mine.returncode == 0
    assert mine.stdout.strip() != grid.token
    assert grid.inside("worker", "ls", "/join").stdout.split() == ["ca.pem", "worker"]
    assert grid.inside("worker", "ls", "/data/tokens").returncode != 0
    assert grid.inside("worker", "touch", "/join/mine").returncode != 0


def test_a_worker_has_no_volume_that_outlives_it(grid: Grid) -> None:
    for worker in grid.must("ps", "--quiet", "worker").split():
        mounts = ["docker", "inspect", "--format", "{{range .Mounts}}{{.Destination}} {{end}}", worker]
        assert subprocess.run(mounts, capture_output=True, text=True, check=True).stdout.split() == ["/join"]
    assert grid.inside("worker", "touch", "/opt/loopline/mine").returncode != 0


def test_a_worker_has_no_power(grid: Grid) -> None:
    look = (
        "for it in /proc/[0-9]*; do if grep -q -a loopline_worker $it/cmdline; then grep CapPrm $it/status; fi; done"
    )
    said = grid.inside("worker", "sh", "-c", f"{look} 2>/dev/null")
    assert NO_POWER in said.stdout


def test_its_tasks_do_not(grid: Grid) -> None:
    look = "cat /join/worker /proc/[0-9]*/environ; ls /data; echo looked"
    job = grid.api("/jobs", {"command": ["sh", "-c", look], "parameters": {"i": {"range": [1, TASKS]}}})["id"]
    grid.until("the job succeeded", lambda: grid.api(f"/jobs/{job}")["state"] == "succeeded")
    assert all(output.endswith("looked\n") and "ll_" not in output for output in grid.outputs(job))


def test_results_outlive_a_killed_master(grid: Grid, job: int) -> None:
    before = grid.outputs(job)
    grid.must("kill", "master")  # SIGKILL
    grid.must("start", "master")
    grid.until("the master answers again", grid.is_healthy)
    assert grid.api(f"/jobs/{job}")["state"] == "succeeded"
    assert grid.outputs(job) == before


def _compose_tool() -> list[str]:
    """The compose command here, where an engine answers it; else the test fails with what to do."""
    for tool in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(tool[0]) and _runs([*tool, "version"]):
            break
    else:
        pytest.fail("no compose command: install Docker with its compose plugin, or docker-compose 1.29")
    if not _runs(["docker", "info", "--format", "{{.ServerVersion}}"]):
        pytest.fail("no container engine answers: start Docker (`docker info` says why), then run this again")
    return tool


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answered(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except (URLError, ConnectionError, TimeoutError):
        return False
