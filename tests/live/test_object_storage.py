"""A grid that keeps its files in a bucket: large ones go past the master, and nothing is lost on the way."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from loopline.transfer import files
from loopline.transfer.downloads import OutputFolder, outputs_of
from loopline_shared.model import JobState, TaskId
from tests.live.conftest import running
from tests.live.grid import Grid
from tests.object_storage import BUCKET, ObjectStorage

TASKS = 12
WORK = "echo {i} > out.bin; cat blob >> out.bin; cat blob blob > more.bin; echo {i} >> more.bin"


@pytest.mark.long
async def test_nothing_is_lost_where_a_tenth_of_the_requests_is_refused_and_the_master_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, blob = ObjectStorage(seed=20261127), os.urandom(400_000)
    with storage.serving():
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        storage.refused = 0.1
        async with running(tmp_path, "--files", f"s3://{BUCKET}/grid") as grid:
            await grid.start_worker("ant", slots=2)
            await grid.start_worker("bee", slots=2)
            job = await submitted(grid, blob)
            await grid.attempts_when("a third", job, lambda all_: sum(a.accepted for a in all_) >= TASKS // 3)
            await grid.kill_worker("bee")
            await grid.kill_master()
            await grid.start_master()
            assert (await grid.ended(job)).state is JobState.SUCCEEDED
            await check_outputs(grid, job, tmp_path / "home", blob)
    share = storage.bytes["master"] / storage.bytes.total()
    print(
        f"{storage.refusals} requests refused; of {storage.bytes.total():,} bytes {share:.2%} went through the master"
    )
    assert storage.refusals > 0
    assert share < 0.05


async def submitted(grid: Grid, blob: bytes) -> int:
    client = grid.client()
    await client.__aenter__()
    name = await files.upload(client, blob)
    return await grid.submit(WORK, TASKS, inputs={"blob": f"sha256:{name}"}, outputs=["*.bin"])


async def check_outputs(grid: Grid, job: int, home: Path, blob: bytes) -> None:
    client = grid.client()
    await client.__aenter__()
    home.mkdir()
    for number in range(1, TASKS + 1):
        task = TaskId(job, number)
        outputs = await outputs_of(client, task)
        await OutputFolder(home).download(client, task, outputs, str(number))
        line = f"{number}\n".encode()
        expected = {"out.bin": line + blob, "more.bin": blob + blob + line}
        found = {path: (home / str(number) / path).read_bytes() for path in expected}
        assert {file.path: file.sha256 for file in outputs} == {
            path: hashlib.sha256(content).hexdigest() for path, content in expected.items()
        }
        assert found == expected
