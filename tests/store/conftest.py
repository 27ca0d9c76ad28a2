from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from loopline_master.store import Store, open_store
from tests.store.postgres import or_skip, running_postgres

_numbers = count(1)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'loopline.db'}"


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    async with open_store(sqlite_url) as store:
        yield store


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all examples of a property test, which cannot be async itself."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server; skips with the reason if none is available."""
    with or_skip(running_postgres()) as url:
        yield url


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """An empty database for this test."""
    name = f"loopline_{next(_numbers)}"

    async def create() -> None:
        connection = await asyncpg.connect(f"{postgres}/postgres")
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return f"{postgres}/{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database, of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
