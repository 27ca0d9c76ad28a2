"""A function on a worker imports the user's modules, never ours of the same name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import loopline
from tests.live.grid import Grid

NAMES = ("shared", "master", "worker", "simulator", "migrations")


async def test_function_that_imports_worker_does_not_get_our_module(
    grid: Grid, tmp_path_factory: pytest.TempPathFactory
) -> None:
    users = tmp_path_factory.mktemp("users")
    for name in NAMES:
        (users / f"{name}.py").write_text(f"whose = 'the user: {name}'\n")
    await grid.start_worker("ant")
    await grid.connected("ant")
    assert await imported(grid, {}) == [f"ModuleNotFoundError {name}" for name in NAMES]
    assert await imported(grid, {"PYTHONPATH": str(users)}) == [f"the user: {name}" for name in NAMES]
    await grid.stop_worker("ant")


async def imported(grid: Grid, environment: dict[str, str]) -> list[str]:
    """Return the modules that imports find on the worker, in an interpreter with this environment."""

    def on_worker(names: tuple[str, ...]) -> list[str]:
        import importlib

        found = []
        for name in names:
            try:
                found.append(importlib.import_module(name).whose)
            except ModuleNotFoundError as error:
                found.append(f"{type(error).__name__} {error.name}")
        return found

    def ask() -> list[str]:
        with loopline.Executor(grid.url, token, environment=environment) as executor:
            return executor.submit(on_worker, NAMES).result(60)

    token = Path(grid.data_dir / "tokens" / "admin").read_text().strip()
    return await asyncio.to_thread(ask)
