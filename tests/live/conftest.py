from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.live.grid import Grid
from tests.store.postgres import Server, or_skip, restartable_postgres


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    """A grid whose master is up; every test ends with the audit and the replay of its log."""
    async with running(tmp_path) as grid:
        yield grid


@pytest.fixture(params=["on", pytest.param("tls", marks=pytest.mark.long)])
async def peers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Grid]:
    """A grid in which files of a MiB and more go between workers: as told, or because it is encrypted."""
    flags = ["--tls", "on"] if request.param == "tls" else ["--peers", "on"]
    async with running(tmp_path, *flags, "--peer-file-bytes", str(2**20)) as grid:
        yield grid


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL server that is not started yet; skips where there is none."""
    with or_skip(restartable_postgres()) as server:
        yield server


@asynccontextmanager
async def running(folder: Path, *flags: str) -> AsyncIterator[Grid]:
    grid = Grid(folder)
    try:
        await grid.start_master("--lease-s", "2", "--report-every-s", "0.5", *flags)
        yield grid
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()
