from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.bench import Bench, running_master


@pytest.fixture(scope="module", autouse=True)
def _no_settings_of_ours() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("LOOPLINE_"):
                patch.delenv(name)
        patch.setenv("LOOPLINE_CONFIG", os.devnull)
        yield


_BEGUN: list[tuple[Path, dict[str, str]]] = []
"""Make the files of a first start, with a token of each role, once per process."""


@pytest.fixture
async def master(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """An empty master whose data folder exists already: creating it takes a third of a start."""
    if not _BEGUN:
        folder = tmp_path_factory.mktemp("begun") / "master"
        async with running_master(folder) as first:
            _BEGUN.append((folder, first.tokens))
    folder, tokens = _BEGUN[0]
    shutil.copytree(folder, tmp_path / "master")
    async with running_master(tmp_path / "master", tokens) as bench:
        yield bench


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_master(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """For tests that change nothing."""
    async with running_master(tmp_path_factory.mktemp("master")) as bench:
        yield bench
