"""Power cuts: the disk of a real grid, rebuilt as a cut at any moment may leave it, has everything acknowledged.

A master, a worker and a backup run under the recorder, and a client notes their promises: jobs, results, files,
tokens and backups. Then disks are rebuilt, and a master and a worker are started on each.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loopline.client import AsyncClient
from loopline.transfer import files
from loopline_shared.model import TaskId
from tests.campaign import LONG, tried
from tests.live.grid import Grid, Process
from tests.power.disk import Disk, compiled, difference, note, read_records, recording

FLAGS = ("--lease-s", "60", "--report-every-s", "0.5")
ROUNDS = 3
OUTPUT_BYTES = 20_000
"""More than a result carries: the output is a file of its own."""


class RecordedGrid(Grid):
    """A grid whose daemons are recorded. Only they may make their folders."""

    shares_speed = False

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._variables = dict(variables)

    async def _spawn(self, log: str, module: str, *arguments: str, more: dict[str, str] | None = None) -> Process:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
        environment |= {"HOME": str(self.folder), "LOOPLINE_SANDBOX": "off"} | (more or {}) | self._variables
        with (self.folder / f"{log}.log").open("a") as file:
            command = (sys.executable, "-m", module, *arguments)
            return await asyncio.create_subprocess_exec(
                *command, env=environment, cwd=self.folder, stdout=file, stderr=file, stdin=asyncio.subprocess.DEVNULL
            )


class Story:
    """The client, and the promises that it notes."""

    def __init__(self, grid: RecordedGrid, log: Path) -> None:
        self._grid, self._client = grid, grid.client()
        self._note = partial(self._write, log)

    @staticmethod
    def _write(log: Path, **promise: Any) -> None:
        note(log, json.dumps(promise))

    async def run(self) -> None:
        self._note(admin=(self._grid.data_dir / "tokens" / "admin").read_text().strip())
        for number in range(ROUNDS):
            token = await self._client.create_token(f"robot-{number}", "user")
            self._note(token=token.secret)
            content = random.Random(number).randbytes(50_000)
            self._note(file=await files.upload(self._client, content))
            jobs = [await self._submit(number, tasks) for tasks in (1, 4)]
            for job in jobs:
                await self._see_end(job)
            await self._submit(number, 2)  # its fate is open at the next cut
            if number == 1:
                await self._grid.kill_master()
                await self._grid.start_master()
                self._client = self._grid.client()
            await self._back_up(f"backup-{number}")

    async def _submit(self, number: int, tasks: int) -> int:
        script = f"head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' {number}; echo task {{i}}"
        job = await self._grid.submit(script, tasks)
        self._note(
            job=job,
            prints=[files.hash_of(f"{str(number) * OUTPUT_BYTES}task {i}\n".encode()) for i in range(1, tasks + 1)],
        )
        return job

    async def _see_end(self, job: int) -> None:
        view = await self._grid.ended(job)
        assert view.state == "succeeded"
        for task in range(1, view.task_count + 1):
            self._note(job=job, task=task, printed=await printed(self._client, job, task))

    async def _back_up(self, name: str) -> None:
        command = ("-m", "loopline_master.maintenance.backup", str(self._grid.folder / "backups" / name))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--data-dir", str(self._grid.data_dir), env=os.environ | self._grid._variables
        )
        assert await process.wait() == 0
        self._note(backup=name)


async def printed(client: AsyncClient, job: int, task: int) -> str:
    """Return the SHA-256 of a task's output."""
    return files.hash_of(b"".join([piece async for piece in client.output(TaskId(job, task))]))


class RebuiltGrid:
    """A grid on a disk after a power cut, and the promises of the grid before it."""

    def __init__(self, folder: Path, original: Path, promises: list[str]) -> None:
        self._grid, self._original = Grid(folder), original
        self._promises = [json.loads(promise) for promise in promises]

    def _of(self, kind: str) -> list[Any]:
        return [promise[kind] for promise in self._promises if kind in promise]

    async def check(self) -> None:
        """Start everything again. Raises AssertionError if a promise is broken."""
        for name in self._of("backup"):
            lost = difference(self._original / "backups" / name, self._grid.folder / "backups" / name)
            assert not lost, f"of the backup {name}: {lost}"
        try:
            await self._grid.start_master(*FLAGS)
            await self._check_what_is_kept()
            await self._grid.start_worker("ant", slots=2)
            for promise in self._promises:
                if "prints" in promise:
                    await self._check_end(promise["job"], promise["prints"])
            await self._grid.check()
        finally:
            await self._grid.stop()

    async def _check_end(self, job: int, prints: list[str]) -> None:
        assert (await self._grid.ended(job)).state == "succeeded", f"job {job}"
        for task, expected in enumerate(prints, 1):
            assert await printed(self._grid.client(), job, task) == expected, f"the output of task {job}.{task}"

    async def _check_what_is_kept(self) -> None:
        client = self._grid.client()
        for secret in self._of("admin") + self._of("token"):
            async with AsyncClient(self._grid.url, secret, ca="") as user:
                assert (await user.whoami()).name
        for sha256 in self._of("file"):
            file = self._grid.folder / "downloaded"
            await files.download(client, sha256, file, file.with_suffix(".part"))
        known = {job.id async for job in client.jobs()}
        assert set(self._of("job")) <= known, f"of the jobs {self._of('job')}, only {known} are there"
        for promise in self._promises:
            if "printed" in promise:
                job, task = promise["job"], promise["task"]
                assert (await client.task(TaskId(job, task))).state == "succeeded", f"task {job}.{task}"
                assert await printed(client, job, task) == promise["printed"], f"the output of task {job}.{task}"


async def recorded(folder: Path) -> tuple[Disk, Path]:
    """Run a grid in ``folder``. Return its disk before the run, and the log of its writes."""
    folder.mkdir()
    log = folder.with_name("log")
    before = Disk(folder)
    grid = RecordedGrid(folder, recording(compiled(folder.parent), folder, log))
    try:
        await grid.start_master(*FLAGS)
        await grid.start_worker("ant", slots=2)
        await Story(grid, log).run()
    finally:
        await grid.stop()
    return before, log


def _check_complete(disk: Disk, log: Path, folder: Path, seen: Path) -> None:
    """Check that the recorder missed no write: all of them together make the folder as it is."""
    for record in read_records(log):
        disk.apply(record)
    disk.rebuild(seen)
    for name in ("master", "ant", "backups"):
        missed = difference(folder / name, seen / name)
        assert not missed, f"the recorder missed writes: {missed}"


@pytest.mark.timeout(3600)
async def test_everything_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    folder, seed = tmp_path / "disk", random.randrange(10**6) if LONG else 1
    disk, log = await recorded(folder)
    _check_complete(deepcopy(disk), log, folder, tmp_path / "seen")
    records, chance = read_records(log), random.Random(seed)
    promised = [place for place, record in enumerate(records, 1) if record.kind == "A"]
    soon_after = [chance.choice(promised) + chance.randrange(4) for _ in range(tried(25, 250))]
    cuts = Counter([min(len(records), place) for place in soon_after])
    cuts.update(chance.randint(1, len(records)) for _ in soon_after)
    for place, record in enumerate(records, 1):
        disk.apply(record)
        for number in range(cuts[place]):
            lost = tmp_path / f"cut-{place}-{number}"
            disk.rebuild(lost, chance)
            try:
                await RebuiltGrid(lost, folder, disk.promised).check()
            except Exception as error:
                raise AssertionError(f"seed {seed}: a power cut after {place} of {len(records)} calls") from error
            shutil.rmtree(lost)
