from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.live.grid import Grid


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    """A grid whose master is up; every test ends with the audit and the replay of its log."""
    grid = Grid(tmp_path)
    try:
        await grid.start_master("--lease-s", "2", "--report-every-s", "0.5")
        yield grid
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()
