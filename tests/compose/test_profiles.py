"""The profiles of docker-compose.yml: rows in PostgreSQL, and a second master that takes over.

The compose file names PostgreSQL's own image. Where LOOPLINE_BASE_IMAGE names another base, as where there is no
registry of images, the server is of that base's packages (postgres/Dockerfile).
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.composed import ROOT, TASKS, Grid, free_port

pytestmark = pytest.mark.timeout(1800)

SLEEPS = ["python3", "-c", "import sys, time; time.sleep(0.5); print(sys.argv[1])", "{i}"]
REACH = ["python3", "-c", "import socket; socket.create_connection(('database', 5432), 3)"]
OWN_IMAGE = "loopline-test-postgres"


def _postgres_image() -> dict[str, str]:
    base = os.environ.get("LOOPLINE_BASE_IMAGE")
    if not base:
        return {}
    build = [
        "docker",
        "build",
        "--build-arg",
        f"BASE_IMAGE={base}",
        "--tag",
        OWN_IMAGE,
        Path(__file__).parent / "postgres",
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {"LOOPLINE_POSTGRES_IMAGE": OWN_IMAGE}


@pytest.fixture(scope="module")
def grid() -> Iterator[Grid]:
    """One whose master keeps its rows in PostgreSQL."""
    lines = (ROOT / "docker-compose.postgres.env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    settings |= {"COMPOSE_PROFILES": "postgres", "LOOPLINE_STANDBY_PORT": str(free_port())}
    grid = Grid(more=settings | _postgres_image())
    try:
        grid.must("build")
        grid.must("up", "--detach", "--scale", "worker=2")
        begun = ("test", "-e", "/data/tokens/ca.pem")
        grid.until("the master has begun", lambda: grid.inside("master", *begun).returncode == 0)
        grid.until("the master serves", grid.serves)
        grid.until("2 workers", lambda: grid.connected() == 2)
        yield grid
    finally:
        grid.more["COMPOSE_PROFILES"] = "postgres,standby"
        grid.down()


@pytest.fixture(scope="module")
def job(grid: Grid) -> int:
    job: int = grid.api("/jobs", {"command": SLEEPS, "parameters": {"i": {"range": [1, TASKS]}}})["id"]
    grid.until("the job succeeded", lambda: grid.api(f"/jobs/{job}")["state"] == "succeeded")
    return job


def _started_at(grid: Grid, service: str) -> str:
    container = grid.must("ps", "--quiet", service).strip()
    look = ["docker", "inspect", "--format", "{{.State.StartedAt}}", container]
    return subprocess.run(look, capture_output=True, text=True, check=True).stdout


def test_the_master_goes_on_when_its_database_was_killed(grid: Grid, job: int) -> None:
    before, outputs = _started_at(grid, "master"), grid.outputs(job)
    grid.must("kill", "database")  # SIGKILL
    grid.until("the master waits", lambda: not grid.serves())
    grid.must("start", "database")
    grid.until("the master serves again", grid.serves)
    assert grid.outputs(job) == outputs
    assert _started_at(grid, "master") == before


def test_tasks_do_not_reach_the_database(grid: Grid) -> None:
    task = grid.api("/jobs", {"command": REACH, "max_attempts": 1})["id"]
    grid.until("the job failed", lambda: grid.api(f"/jobs/{task}")["state"] == "failed")
    assert grid.inside("master", *REACH).returncode == 0


def test_the_standby_takes_over_and_the_first_one_waits_when_it_is_back(grid: Grid, job: int) -> None:
    outputs, standby = grid.outputs(job), int(grid.more["LOOPLINE_STANDBY_PORT"])
    grid.more["COMPOSE_PROFILES"] = "standby"
    grid.must("up", "--detach", "--scale", "worker=2", "--no-recreate")
    grid.until("the standby waits", lambda: not grid.serves(standby))
    spec = {"command": SLEEPS, "parameters": {"i": {"range": [1, 10 * TASKS]}}}
    under_way = grid.api("/jobs", spec)["id"]
    grid.must("kill", "master")
    grid.until("the standby serves", lambda: grid.serves(standby))
    grid.until("its job succeeded", lambda: grid.api(f"/jobs/{under_way}", port=standby)["state"] == "succeeded")
    assert grid.outputs(job, standby) == outputs
    grid.must("start", "master")
    grid.until("the first one waits", lambda: not grid.serves())
    done = grid.inside("master", "loopline", "submit", "--wait", "--", "hostname")
    assert done.returncode == 0, "who knows both addresses reaches the one that works: " + done.stdout
