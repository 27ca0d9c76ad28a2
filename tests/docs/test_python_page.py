"""docs/python.md: all of its Python runs, on a real grid, one block after the other."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.live.grid import ROOT, Grid


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    grid = Grid(tmp_path)
    try:
        await grid.start_master()
        await grid.start_worker("ant", slots=2)
        await grid.connected("ant")
        yield grid
        await grid.check()
    finally:
        await grid.stop()


async def test_every_block_runs(grid: Grid) -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    blocks.append("assert list(scores) == list(cross_val_score(LogisticRegression(), samples, classes, cv=5))")
    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOOPLINE")}
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-", cwd=ROOT, env={**environment, "LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await running.communicate("\n".join(blocks).encode())
    text = output.decode()
    assert running.returncode == 0, text
    for expected in (
        "ZeroDivisionError: division by zero", "[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]\n[1, 2, 4",
        "3 squared is 9", "True [1, 2, 4, 8]\n3\n[3, 2, 1]\n", "[0, 1, 4, 9, 16]", "['A', 'B']", "\n285\n",
        "\n45150\n",
    ):  # fmt: skip
        assert expected in text
