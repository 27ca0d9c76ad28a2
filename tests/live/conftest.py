from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.live.grid import LEASE_S, SHORTEST_LEASE_S, Grid
from tests.store.postgres import Server, or_skip, restartable_postgres


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    """A grid with a running master; each test ends with an audit and a replay of its log.

    Its leases outlast any pause of a busy computer, so that attempts are lost only when a test intends it.
    """
    async with running(tmp_path) as grid:
        yield grid


@pytest.fixture
async def forgetful_grid(tmp_path: Path) -> AsyncIterator[Grid]:
    """The same with leases that end within the test: for workers that do not return, or return late."""
    async with running(tmp_path, lease_s=SHORTEST_LEASE_S) as grid:
        yield grid


@pytest.fixture(params=["on", pytest.param("tls", marks=pytest.mark.campaign)])
async def peers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Grid]:
    """A grid whose workers exchange files of at least 1 MiB, by its setting or because it is encrypted."""
    flags = ["--tls", "on"] if request.param == "tls" else ["--peers", "on"]
    async with running(tmp_path, *flags, "--peer-file-bytes", str(2**20)) as grid:
        yield grid


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL server that is not started yet; skips if none is available."""
    with or_skip(restartable_postgres()) as server:
        yield server


@asynccontextmanager
async def running(folder: Path, *flags: str, lease_s: float = LEASE_S) -> AsyncIterator[Grid]:
    """Run a grid; at the end, audit its order, replay its log, and check that no process is left."""
    grid = Grid(folder)
    try:
        await grid.start_master("--lease-s", str(lease_s), "--report-every-s", "0.5", *flags)
        yield grid
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()
