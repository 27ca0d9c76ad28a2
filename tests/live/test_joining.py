"""A new computer joins and works after one command."""

from __future__ import annotations

import asyncio
import os

from loopline_shared.joining import JoinLine
from tests.live.grid import Grid
from tests.warm import starting


async def test_computer_joins_and_works(grid: Grid) -> None:
    made = await grid.client().create_join_token(uses=1, expires_s=600)
    line = str(JoinLine(made.address, made.secret))
    home = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    home |= {"HOME": str(grid.folder)}
    for _ in range(2):  # twice, as if the first response had been lost
        joining = await asyncio.create_subprocess_exec(
            *starting("loopline"), "join", line, "--name", "pc-1", cwd=grid.folder, env=home
        )
        assert await joining.wait() == 0
    grid.workers["pc-1"] = await grid._spawn("pc-1", "loopline_worker", "--policy", "always")
    await grid.connected("pc-1")
    job = await grid.submit("true")
    assert (await grid.ended(job)).state == "succeeded"
