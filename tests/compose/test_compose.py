"""The one-machine grid of docker-compose.yml, on a real container engine: ``make test-compose``."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.compose.composed import TASKS, Grid

pytestmark = pytest.mark.timeout(1800)  # the first build downloads the base and every dependency

WORKERS = 4
TASKS_USERS = set(range(10101, 10165))
NO_POWER = "CapPrm:\t0000000000000000"
WHO_AND_WHERE = "import os, socket, time; time.sleep(1); print(os.getuid(), socket.gethostname())"


@pytest.fixture(scope="module")
def grid() -> Iterator[Grid]:
    grid = Grid()
    try:
        grid.must("build")
        grid.must("up", "--detach", "--scale", f"worker={WORKERS}")
        grid.until("the master answers", grid.is_healthy)
        grid.until(f"{WORKERS} workers", lambda: grid.connected() == WORKERS)
        yield grid
    finally:
        grid.down()


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
