from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.python.small_grid import SmallGrid, serving


@pytest.fixture
def small() -> Iterator[tuple[SmallGrid, asyncio.AbstractEventLoop]]:
    with serving() as grid_and_loop:
        yield grid_and_loop


@pytest.fixture
def grid(small: tuple[SmallGrid, asyncio.AbstractEventLoop]) -> SmallGrid:
    return small[0]


@pytest.fixture
def finish(small: tuple[SmallGrid, asyncio.AbstractEventLoop]) -> Callable[[int], None]:
    """Have a job's calls made now."""
    grid, loop = small
    return lambda number: asyncio.run_coroutine_threadsafe(grid.finish(number), loop).result(60)
