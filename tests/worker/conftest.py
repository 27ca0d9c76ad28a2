import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.worker.bench import Bench, processes_of, until
from tests.worker.caller import Caller
from tests.worker.small_master import SmallMaster


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as bench:
        yield bench


@pytest.fixture
async def low_bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench whose tasks have low priority: slow if other tests run at the same time."""
    async with Bench(tmp_path, yields=True) as bench:
        yield bench


@pytest.fixture
async def caller(bench: Bench) -> AsyncIterator[Caller]:
    caller = Caller(bench)
    yield caller
    caller.warm.interpreters.close()
    await until(lambda: not processes_of(bench.folder))


@pytest.fixture
async def master() -> AsyncIterator[SmallMaster]:
    master = SmallMaster()
    await master.start()
    with master.kept:
        yield master
        await master.stop()


@pytest.fixture
def outside_tmp(pytestconfig: pytest.Config) -> Iterator[Path]:
    """A folder outside /tmp: a sandboxed task has a private /tmp."""
    folder = pytestconfig.rootpath / ".bench" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name)
