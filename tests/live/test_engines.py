"""Other engines as gangs on a real grid: a Dask cluster, and an MPI program with Open MPI."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from loopline.transfer.files import upload
from loopline_shared.model import JobState
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid
from tests.live.test_gangs import text, with_workers

ROOT = Path(__file__).parents[2]
DASK_CLIENT = """
import distributed
with distributed.Client(timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    names = sorted(one["name"] for one in client.scheduler_info()["workers"].values())
    print(*names, sum(client.gather(client.map(pow, range(50), [2] * 50))))
"""
MPI_PROGRAM = """
import ctypes
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
of = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
rank, mine, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(of("ompi_mpi_comm_world"), ctypes.byref(rank))
mine.value = rank.value + 1
sum_of = of("ompi_mpi_op_sum")
mpi.MPI_Allreduce(
    ctypes.byref(mine), ctypes.byref(total), 1, of("ompi_mpi_int"), sum_of, of("ompi_mpi_comm_world")
)
print("rank", rank.value, "sum", total.value, flush=True)
mpi.MPI_Finalize()
"""


@pytest.mark.campaign
async def test_dask_cluster_is_a_gang_and_ends_with_its_client(grid: Grid) -> None:
    await with_workers(grid, "ant", "bee", settings={"LOOPLINE_SANDBOX": "auto"})
    said, code = await run(grid, "run", "dask", "--python", sys.executable, "--", sys.executable, "-c", DASK_CLIENT)
    assert code == 0, said
    assert "rank-0 rank-1 40425" in said
    (job,) = [one async for one in grid.client().jobs()]
    assert (await grid.ended(job.id)).state is JobState.CANCELLED
    await grid.no_processes()


@pytest.mark.campaign
async def test_missing_dask_on_workers_is_reported(grid: Grid) -> None:
    show = {"LOOPLINE_SANDBOX": "auto", "LOOPLINE_SANDBOX_SHOWS": str(grid.folder)}
    await with_workers(grid, "ant", "bee", settings=show)
    lacking = grid.folder / "python-without-dask"
    lacking.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n', "utf-8")
    lacking.chmod(0o755)
    said, code = await run(grid, "run", "dask", "--python", str(lacking), "--", "true")
    assert code == 1
    assert "Dask is not installed for" in said


@pytest.mark.campaign
async def test_missing_interpreter_on_workers_is_named(grid: Grid) -> None:
    await with_workers(grid, "ant", "bee", settings={"LOOPLINE_SANDBOX": "auto"})
    said, code = await run(grid, "run", "dask", "--python", "/nowhere/python", "--", "true")
    assert code == 1
    assert "did not come up: cannot run /nowhere/python" in said


async def run(grid: Grid, *words: str) -> tuple[str, int | None]:
    token = (grid.data_dir / "tokens" / "admin").read_text("utf-8").strip()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loopline.cli", *words),
        env={**os.environ, "LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 100)
    return said.decode(), process.returncode


@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("orted") is None, reason="needs Open MPI: apt install openmpi-bin")
async def test_mpi_program_runs_on_the_members_without_ssh(grid: Grid) -> None:
    """Each process finds the program, an input of the job, in its own member's folder, the only one that it sees."""
    await with_workers(grid, "ant", "bee", "cat", settings={"LOOPLINE_SANDBOX": "auto"})
    client = grid.client()
    program = grid.folder / "program.py"
    program.write_text(MPI_PROGRAM, "utf-8")
    files = {one.name: await upload(client, one) for one in (ROOT / "examples" / "mpi" / "gang_mpirun.py", program)}
    command = [sys.executable, "gang_mpirun.py", sys.executable, "./program.py"]
    inputs = {name: f"sha256:{file}" for name, file in files.items()}
    spec = JobSpec(command=command, nodes=3, inputs=inputs, max_attempts=1)  # type: ignore[arg-type]
    job = (await client.submit(spec)).id
    ended = await grid.ended(job)
    assert ended.state is JobState.SUCCEEDED, [await text(client, job, rank) for rank in range(3)]
    assert sorted((await text(client, job, 0)).splitlines()) == [f"rank {rank} sum 6" for rank in range(3)]
