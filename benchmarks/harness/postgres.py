"""A grid whose master keeps its rows in a PostgreSQL of its own, which writes to disk what it says it has written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from benchmarks.harness.grid import EndedError, Grid, grid
from tests.store.postgres import Missing, running_postgres


@asynccontextmanager
async def postgres_grid(slots: int, **options: Any) -> AsyncIterator[Grid]:
    """Return a grid as ``harness.grid.grid`` makes it. Raises EndedError where PostgreSQL cannot be had."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres("fsync=on"))
        except Missing as reason:
            raise EndedError(str(reason)) from None
        async with grid(slots, "--database-url", f"{server}/postgres", **options) as one:
            yield one
