"""`loopline elastic` on a real Slurm of one node (Debian's slurm-wlm and munge), as root. `-s` shows its figures."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline_shared.job.parameters import Range
from loopline_shared.model import JobState
from loopline_shared.spec import JobSpec
from tests.live.conftest import running
from tests.live.grid import Grid, wait_for

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("slurmctld") or os.geteuid() != 0, reason="no Slurm here, or not root"),
    pytest.mark.skipif(not importlib.util.find_spec("psij"), reason="no PSI/J here: pip install psij-python"),
]
CONF = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=10
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=short Nodes=ALL Default=YES MaxTime=60 State=UP
"""
MOST, IDLE_S = 5, 6


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


async def ran(*line: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *line, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return said.decode(errors="replace")


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    async with running(tmp_path, "--lease-s", "30", "--report-every-s", "5") as grid:
        yield grid


@pytest.fixture
async def slurm(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Start a cluster of one node; yield the environment for Slurm's commands."""
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=socket.gethostname(), ports=free_ports(), folder=folder))
    own = [
        *(await munge(folder)),
        ["slurmctld", "-D", "-f", conf],
        ["slurmd", "-D", "-f", conf, "-N", socket.gethostname()],
    ]
    started = [await asyncio.create_subprocess_exec(*map(str, line), stdout=subprocess.DEVNULL) for line in own]
    environment = {"SLURM_CONF": str(conf)}

    async def is_idle() -> bool:
        return "idle" in await ran("sinfo", "--noheader", "--format=%T", **environment)

    await wait_for("the node to be there", is_idle)
    yield environment
    await ran("scancel", "--me", "--signal=KILL", "--full", **environment)
    for process in reversed(started):
        process.terminate()
        await process.wait()


async def munge(folder: Path) -> list[list[object]]:
    """Return the command that starts munge, or nothing if it is already running."""
    if "Success" in await ran("sh", "-c", "munge -n | unmunge"):
        return []
    key, log = folder / "munge.key", folder / "munge.log"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
    return [["munged", "--foreground", "--force", f"--key-file={key}", f"--log-file={log}"]]


class Elastic:
    """`loopline elastic slurm` as a process that tests can kill, and the queue sampled ten times a second."""

    def __init__(self, grid: Grid, environment: dict[str, str]) -> None:
        self._grid, self._environment = grid, environment
        self.most = 0
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, time_limit: str) -> None:
        grid = self._grid
        line = [sys.executable, "-P", "-m", "loopline", "elastic", "slurm", "--state", str(grid.folder / "elastic")]
        line += [
            "--master",
            grid.url,
            "--max",
            str(MOST),
            "--idle",
            str(IDLE_S),
            "--every",
            "1s",
            "--time-limit",
            time_limit,
        ]
        line += ["--token-file", str(grid.data_dir / "tokens" / "worker")]
        line += ["--worker", f"{sys.executable} -P -m loopline worker --no-sandbox", "--scratch", str(grid.folder)]
        token = grid.data_dir / "tokens" / "admin"
        environment = os.environ | self._environment | {"LOOPLINE_TOKEN_FILE": str(token)}
        with (grid.folder / "elastic.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*line, env=environment, stdout=log, stderr=log)

    async def end(self, signum: int) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signum)
        return await self.process.wait()

    async def queued(self) -> int:
        lines = (await ran("squeue", "--noheader", "--format=%i", **self._environment)).split()
        self.most = max(self.most, len(lines))
        return len(lines)

    async def is_gone(self) -> bool:
        return await self.queued() == 0


@pytest.fixture
async def elastic(grid: Grid, slurm: dict[str, str]) -> AsyncIterator[Elastic]:
    elastic = Elastic(grid, slurm)
    yield elastic
    if elastic.process is not None:
        await elastic.end(signal.SIGKILL)


async def test_elastic_starts_and_ends_workers_for_200_tasks_across_a_crash(grid: Grid, elastic: Elastic) -> None:
    await elastic.start("5m")
    began = time.monotonic()
    spec = JobSpec(command=["sleep", "1"], parameters={"i": Range(range=[1, 200])}, size=200.0)
    job = (await grid.client().submit(spec)).id

    async def has_started() -> bool:
        await elastic.queued()
        return (await grid.job(job)).tasks.queued < 200

    await wait_for("the first task to start", has_started)
    started_s = time.monotonic() - began
    for _ in range(3):
        await elastic.end(signal.SIGKILL)
        await elastic.start("5m")
        assert await elastic.queued() <= MOST

    async def is_over() -> bool:
        await elastic.queued()
        return (await grid.job(job)).finished_at is not None

    await wait_for("the job", is_over, 300)
    over = time.monotonic()
    assert (await grid.job(job)).state is JobState.SUCCEEDED
    await wait_for("the workers to go", elastic.is_gone, 120)
    gone_s = time.monotonic() - over
    assert await elastic.end(signal.SIGTERM) == 130
    assert 0 < elastic.most <= MOST
    assert not [name for name in grid.folder.iterdir() if name.name.startswith("slurm-")], (
        "folders are removed with their workers"
    )
    print(f"first task after {started_s:.1f} s, {elastic.most} queued at most, gone {gone_s:.1f} s after the last")


async def test_time_limit_of_a_minute_ends_no_task_of_20_seconds(grid: Grid, elastic: Elastic) -> None:
    await elastic.start("1m")
    spec = JobSpec(command=["sleep", "20"], parameters={"i": Range(range=[1, 20])}, size=400.0)
    job = (await grid.client().submit(spec)).id
    await grid.ended(job, 400)
    attempts = await grid.attempts(job)
    print(*attempts, sep="\n")
    assert {attempt.state.value for attempt in attempts} == {"succeeded"}
    assert len(attempts) == 20
    await elastic.end(signal.SIGKILL)
    await wait_for("the workers to go", elastic.is_gone, 120)
    print(f"20 tasks of 20 s on {len({attempt.worker for attempt in attempts})} workers of a minute, none lost")
