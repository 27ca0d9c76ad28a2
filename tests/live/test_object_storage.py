"""A grid with its files in a bucket: large files bypass the master, and no file is lost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from loopline.client import AsyncClient
from loopline.transfer import files
from loopline.transfer.downloads import OutputFolder, outputs_of
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, TaskId
from tests.live.conftest import running
from tests.live.grid import Grid, wait_for
from tests.object_storage import BUCKET, ObjectStorage
from tests.store.postgres import Server

TASKS = 12
WORK = "echo {i} > out.bin; cat blob >> out.bin; cat blob blob > more.bin; echo {i} >> more.bin"


@pytest.mark.campaign
async def test_no_file_is_lost_with_refused_requests_and_a_killed_master(
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


@pytest.mark.campaign
async def test_master_waits_for_an_unreachable_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, blob = ObjectStorage(), os.urandom(400_000)
    with storage.serving():
        port = storage.port
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        grid = Grid(tmp_path)
        await grid.start_master("--files", f"s3://{BUCKET}/grid")
        await grid.start_worker("ant", slots=2)
        job = await submitted(grid, blob)
        await grid.attempts_when("some", job, lambda all_: any(a.accepted for a in all_))
    await grid.kill_master()
    starting = asyncio.create_task(grid.start_master())

    async def waits() -> bool:
        assert not starting.done()
        return await why_not(grid) == "bucket_away"

    try:
        await wait_for("the master to wait for its bucket", waits, 120)
        with storage.serving(port):
            await starting
            assert (await grid.ended(job)).state is JobState.SUCCEEDED
            await check_outputs(grid, job, tmp_path / "home", blob)
    finally:
        starting.cancel()
        await grid.stop()


@pytest.mark.campaign
async def test_remote_standby_reads_files_of_the_first_master_from_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    storage, blob = ObjectStorage(), os.urandom(400_000)
    await asyncio.to_thread(server.start)
    flags = ["--files", f"s3://{BUCKET}/grid", "--database-url", f"{server.url}/postgres", "--standby"]
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
    first, second = map(Grid, folders)
    with storage.serving():
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        try:
            await first.start_master(*flags)
            shutil.copytree(first.data_dir / "tokens", second.data_dir / "tokens")
            taking_over = asyncio.create_task(second.start_master(*flags))
            await first.start_worker("ant", slots=2, url=f"{first.url},{second.url}")
            job = await submitted(first, blob)
            await first.attempts_when("a third", job, lambda all_: sum(a.accepted for a in all_) >= TASKS // 3)
            assert not taking_over.done()
            await first.kill_master()
            await taking_over
            assert (await second.ended(job)).state is JobState.SUCCEEDED
            await check_outputs(second, job, tmp_path / "home", blob)
        finally:
            await first.stop()
            await second.stop()


async def why_not(grid: Grid) -> str:
    """Return the code of a master's refusal, or "" if it serves."""
    try:
        async with AsyncClient(grid.url, "any", patience_s=0.0) as client:
            await client.whoami()
    except LooplineError as error:
        return error.code
    return ""


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
