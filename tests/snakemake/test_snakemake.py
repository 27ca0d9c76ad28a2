"""A workflow on a real grid, with Snakemake in an environment of its own: ``make test-snakemake``.

Its libraries and the master's cannot be in one environment (sqlmodel wants another SQLAlchemy), so that the workflow
runs in a fresh one, which is made from the package index, and the grid in that of the tests.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline_shared.model import TaskId
from tests.live.grid import ROOT, Grid

pytestmark = pytest.mark.timeout(900)
SNAKEMAKE = ("snakemake>=9.20,<10",)
PLUGIN = ROOT / "snakemake-executor-plugin-loopline"

WORKFLOW = """
rule all:
    input: "sum.txt"

rule number:
    output: "number-{n}.txt"
    shell: "echo {wildcards.n} > {output}; echo $LOOPLINE_WORKER > {output}.by"

rule sum:
    input: expand("number-{n}.txt", n=range(1, 5))
    output: "sum.txt"
    threads: 2
    shell: "cat {input} | paste -sd+ | bc > {output} || awk '{{s+=$1}} END {{print s}}' {input} > {output}"

rule fail:
    output: "never.txt"
    shell: "echo about to fail >&2; exit 3"
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with Snakemake, the plug-in and Loopline's client."""
    if given := os.environ.get("LOOPLINE_TEST_SNAKEMAKE"):
        return Path(given)
    folder = tmp_path_factory.mktemp("snakemake")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    made = subprocess.run([*pip, *SNAKEMAKE, str(ROOT), str(PLUGIN)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no environment with Snakemake can be made here: {made.stderr[-500:]}")
    return folder / "bin" / "python"


@pytest.fixture
async def grid(tmp_path: Path, python: Path) -> AsyncIterator[Grid]:
    """With workers as they come: in the sandbox, which shows the workflow's folder, and Snakemake."""
    grid = Grid(tmp_path)
    grid.sandbox = "auto"
    try:
        await grid.start_master()
        shown = ["--shared-folder", str(tmp_path), "--sandbox-show", str(python.parents[1])]
        await grid.start_worker("ant", *shown, slots=2)
        yield grid
        await grid.check()
    finally:
        await grid.stop()


async def run(python: Path, grid: Grid, folder: Path, *targets: str) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(WORKFLOW)
    command = ["-m", "snakemake", "--executor", "loopline", "--jobs", "4", "--loopline-master", grid.url, *targets]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "PYTHON"))}
    environment["LOOPLINE_TOKEN"] = (grid.data_dir / "tokens" / "admin").read_text().strip()
    done = await asyncio.create_subprocess_exec(
        str(python), *command, "--seconds-between-status-checks", "1",
        cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await done.communicate()
    assert done.returncode is not None
    return done.returncode, output.decode()


async def errors(grid: Grid) -> str:
    """What the first job of the workflow wrote to stderr."""
    return b"".join([piece async for piece in grid.client().output(TaskId(1, 1), "stderr")]).decode()


async def test_a_workflow(python: Path, grid: Grid) -> None:
    folder = grid.folder / "workflow"
    code, output = await run(python, grid, folder)
    assert code == 0, output + await errors(grid)
    assert (folder / "sum.txt").read_text().strip() == "10"
    assert {file.read_text().strip() for file in folder.glob("*.by")} == {"ant"}
    jobs = [job async for job in grid.client().jobs()]
    assert sorted(job.name for job in jobs) == ["number"] * 4 + ["sum"]
    assert {job.state.value for job in jobs} == {"succeeded"}
    sessions = {(await grid.client().job(job.id)).spec.session for job in jobs}
    assert len(sessions - {None}) == len(sessions) == 1


async def test_workers_that_do_not_share_the_folder_are_named_at_once(python: Path, grid: Grid) -> None:
    code, output = await run(python, grid, grid.folder.parent / "elsewhere")
    assert code == 1, output
    assert f"no worker of the grid shares {grid.folder.parent / 'elsewhere'}: they share {grid.folder}" in output
    assert "--shared-folder" in output
    assert [job async for job in grid.client().jobs()] == []


async def test_a_rule_that_fails(python: Path, grid: Grid) -> None:
    code, output = await run(python, grid, grid.folder / "failing", "never.txt")
    assert code == 1, output
    assert "loopline logs 1.1 --stderr" in output
