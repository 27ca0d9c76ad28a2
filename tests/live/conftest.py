from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.live.grid import LEASE_S, SHORTEST_LEASE_S, Grid
from tests.store.postgres import Server, or_skip, restartable_postgres


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    """A grid whose master is up; every test ends with the audit and the replay of its log.

    Its leases outlast any pause of a busy computer: no attempt is lost unless a test means it to be.
    """
    async with running(tmp_path) as grid:
        yield grid


@pytest.fixture
async def forgetful_grid(tmp_path: Path) -> AsyncIterator[Grid]:
    """The same, but its leases end within the test: for workers that do not come back, or come back late."""
    async with running(tmp_path, lease_s=SHORTEST_LEASE_S) as grid:
        yield grid


@pytest.fixture(params=["on", pytest.param("tls", marks=pytest.mark.campaign)])
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
async def running(folder: Path, *flags: str, lease_s: float = LEASE_S) -> AsyncIterator[Grid]:
    """Run a grid: at the end its order is audited, its log replayed, and no process may be left."""
    grid = Grid(folder)
    try:
        await grid.start_master("--lease-s", str(lease_s), "--report-every-s", "0.5", *flags)
        yield grid
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()
