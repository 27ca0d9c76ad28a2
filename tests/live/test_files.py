"""Input and output files of tasks over the command line, with workers that are killed."""

from __future__ import annotations

import asyncio
import filecmp
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loopline.transfer import files
from loopline_shared.model import JobState, TaskId
from tests.live.grid import Grid
from tests.warm import starting

WORK = """\
mkdir -p out/$1
{ cat data/table.csv data/more/blob; echo $2; } | cksum > out/$1/sum.txt
sort -r data/table.csv | sed "s/$/ $1/" > out/$1/table.csv
echo noise > data/noise
"""
TASKS = 60


@pytest.fixture(autouse=True)
def sandbox_by_default(grid: Grid) -> None:
    grid.sandbox = "auto"


async def loopline(grid: Grid, *words: str, folder: Path) -> Any:
    """Run a command as a user types it, and return its JSON output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    environment |= {
        "HOME": str(folder),
        "LOOPLINE_MASTER": grid.url,
        "LOOPLINE_TOKEN": token,
    }
    command, *rest = words
    process = await asyncio.create_subprocess_exec(
        *starting("loopline"), command, "--json", *rest,
        cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


def differences(one: Path, other: Path) -> list[str]:
    """Return the files that differ between both sides."""
    paths = {path.relative_to(side) for side in (one, other) for path in side.rglob("*") if path.is_file()}
    paths = {path for path in paths if not path.name.endswith((".out", ".err"))}
    assert paths
    return [str(p) for p in paths if not ((one / p).is_file() and (other / p).is_file())
            or not filecmp.cmp(one / p, other / p, shallow=False)]  # fmt: skip


@pytest.mark.campaign
async def test_sweep_with_files_completes_when_worker_and_master_are_killed(grid: Grid, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    (desk / "data" / "more").mkdir(parents=True)
    (desk / "data" / "table.csv").write_text("".join(f"{n},{n * n}\n" for n in range(500)))
    (desk / "data" / "more" / "blob").write_bytes(os.urandom(300_000))
    (desk / "work.sh").write_text(WORK)
    for name in ("ant", "bee", "cat"):
        await grid.start_worker(name, slots=2)
    submitted = await loopline(
        grid, "submit", "--input", "data/", "--input", "work.sh", "--output", "out/**",
        "--param", f"i=1..{TASKS}", "--array", "0-0", "--", "sh", "work.sh", "{index}", "{i}", folder=desk,
    )  # fmt: skip
    job = submitted["id"]
    await grid.attempts_when("a third", job, lambda all_: sum(a.accepted for a in all_) >= TASKS // 3)
    await grid.kill_worker("bee")
    await grid.attempts_when("two thirds", job, lambda all_: sum(a.accepted for a in all_) >= 2 * TASKS // 3)
    await grid.kill_master()
    await grid.start_master()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    fetched = await loopline(grid, "fetch", str(job), "home", "--layout", "{i}", folder=desk)
    assert fetched["fetched"] == 4 * TASKS
    await asyncio.to_thread(check_against_local, desk)
    again = await loopline(grid, "fetch", str(job), "home", "--layout", "{i}", folder=desk)
    assert (again["fetched"], again["present"]) == (0, 4 * TASKS)


def check_against_local(desk: Path) -> None:
    """Do the same work here, one task after another, and compare."""
    (desk / "here.sh").write_text(WORK.replace("echo noise > data/noise\n", ""))
    each = "mkdir -p local/$i; cd local/$i; ln -s ../../data data; sh ../../here.sh 0 $i; rm data"
    subprocess.run(["sh", "-ec", f"for i in $(seq $0); do ({each}); done", str(TASKS)], cwd=desk, check=True)
    assert differences(desk / "home", desk / "local") == []


async def test_upload_resumes_after_a_restart_of_the_killed_master(grid: Grid, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(2**20) * 96)
    counts: list[int] = []
    begun = asyncio.Event()

    def count_bytes(count: int) -> None:
        counts.append(count)
        if sum(counts) > 2**23:
            begun.set()

    upload = asyncio.create_task(files.upload(grid.client(), large, count_bytes))
    await begun.wait()
    await grid.kill_master()
    assert not upload.done()
    before = len(counts)
    await grid.start_master()
    sha256 = await upload
    assert sum(counts) == large.stat().st_size
    assert min(sum(counts[:count]) for count in range(before, len(counts))) > 0  # it resumed
    stored = grid.data_dir / "files" / sha256[:2] / sha256[2:]
    assert filecmp.cmp(stored, large, shallow=False)


async def test_outputs_behind_links_are_not_followed(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    client = grid.client()
    script = "ln -s /etc/passwd a.csv; ln -s /etc etc; ln -s . here; echo mine > b.csv"
    optional = [{"path": path, "optional": True} for path in ("**/passwd", "here/*.csv")]
    job = await grid.submit(script, outputs=["*.csv", *optional])
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    (attempt,) = await grid.attempts(job)
    assert attempt.output_count == 1
    assert "1 links or devices" in attempt.reason
    named = await grid.submit(script, outputs=["etc/passwd"], max_attempts=1)
    assert (await grid.ended(named)).state is JobState.FAILED
    (attempt,) = await grid.attempts(named)
    found = "(found: a.csv, b.csv, etc, here)"
    assert attempt.reason == f"its output etc/passwd is behind a link, which is not followed {found}"
    outputs = (await client.task(TaskId(job, 1))).outputs
    assert [file.path for file in outputs] == ["b.csv"]


async def test_task_without_its_outputs_fails_once_and_the_others_are_kept(grid: Grid, tmp_path: Path) -> None:
    await grid.start_worker("ant")
    script = "mkdir out.zarr; touch out.zarr/.zgroup; echo 1 > a.CSV; echo 2 > log.txt; chmod +x log.txt"
    job = await grid.submit(script, outputs=["*.csv", "*.{txt,md}", "out.zarr"], max_attempts=3)
    assert (await grid.ended(job)).state is JobState.FAILED
    (attempt,) = await grid.attempts(job)  # no second attempt
    assert attempt.reason == "its outputs *.csv, *.md matched no file (found: a.CSV, log.txt, out.zarr/)"
    fetched = await loopline(grid, "fetch", str(job), "home", folder=tmp_path)
    assert (fetched["outputs"], fetched["failed"]) == (0, 1)
    assert (await loopline(grid, "fetch", str(job), "home", "--failed", folder=tmp_path))["outputs"] == 2
    assert (tmp_path / "home" / "1" / "out.zarr" / ".zgroup").exists()
    assert os.access(tmp_path / "home" / "1" / "log.txt", os.X_OK)


async def test_input_written_back_unchanged_is_an_output(grid: Grid, tmp_path: Path) -> None:
    await grid.start_worker("ant")
    (tmp_path / "start.txt").write_text("1.0\n")
    script = "if [ {step} = 1 ]; then echo 2.0 > start.txt; fi"
    options = ["--param", "step=0,1", "--input", "start.txt", "--output", "start.txt"]
    job = (await loopline(grid, "submit", *options, "--", "sh", "-c", script, folder=tmp_path))["id"]
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    await loopline(grid, "fetch", str(job), "home", folder=tmp_path)
    assert [(tmp_path / "home" / task / "start.txt").read_text() for task in "12"] == ["1.0\n", "2.0\n"]


async def test_program_runs_over_files_with_one_command(grid: Grid, tmp_path: Path) -> None:
    await grid.start_worker("ant", slots=2)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
    (tmp_path / "all").write_text("".join(f"{number}.txt\n" for number in range(20)))
    options = ["--each-line", "all", "--input", "{line}", "--output", "{line}.out", "--env", "NAME=of {line}"]
    script = 'echo $(ls) $NAME > "{line}.out"'
    job = (await loopline(grid, "submit", *options, "--", "sh", "-c", script, folder=tmp_path))["id"]
    assert (await grid.ended(job)).state is JobState.SUCCEEDED, [a.reason for a in await grid.attempts(job)]
    await loopline(grid, "fetch", str(job), "home", folder=tmp_path)
    for number in range(20):
        said = (tmp_path / "home" / str(number + 1) / f"{number}.txt.out").read_text()
        assert said == f"{number}.txt of {number}.txt\n", "each task sees only its own file"


async def test_task_fails_at_once_if_the_master_lost_its_file(grid: Grid, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("x")
    sha256 = await files.upload(grid.client(), file)
    job = await grid.submit("cat x", inputs={"x": f"sha256:{sha256}"}, max_attempts=1)
    (grid.data_dir / "files" / sha256[:2] / sha256[2:]).unlink()
    await grid.start_worker("ant")
    assert (await grid.ended(job)).state is JobState.FAILED
    assert "the master has no file" in (await grid.attempts(job))[0].reason
