"""``loopline local``: a grid on this computer, for as long as the command runs."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from loopline import settings as client_settings
from loopline.cli.common import PLAIN, Common, stderr
from loopline.cli.errors import usage
from loopline.local.local_grid import LocalGrid, new_grid, started
from loopline.local.stopping import run_command, run_until_stopped

WORKER = "here"


def local(
    *command: str,
    slots: int | None = None,
    port: int | None = None,
    data_dir: Path | None = None,
    common: Common = PLAIN,
) -> int:
    """Run a grid on this computer: a master and a worker, until Ctrl-C or until a command has ended.

    It has one user, so it runs without the order guarantee (`order = none`): jobs complete as they are done.

    Commands in other terminals of this computer find it without a token. With a command after `--`, that command runs
    on the grid, and the grid ends with it:

        loopline local
        loopline local -- loopline submit --wait --array 1-100 -- hostname
        loopline local --slots 2 -- python3 sweep.py

    Parameters
    ----------
    command
        Command to run on the grid. LOOPLINE_MASTER and LOOPLINE_TOKEN_FILE are set for it.
    slots
        Tasks that run at a time (default: a slot a core).
    port
        Port of the master (default: 7461, or any if that is taken).
    data_dir
        Folder of the grid's data, to be continued next time; without it, jobs and results go with the grid.
    """
    if slots is not None and slots < 1:
        raise usage("--slots must be 1 or more")
    grid = new_grid(port, data_dir)
    closing_words = "\nthe grid has ended, and its tasks with it"
    return run_until_stopped(_local(grid, command, slots, common), lambda: stderr().print(closing_words))


async def _local(grid: LocalGrid, command: tuple[str, ...], slots: int | None, common: Common) -> int:
    console, began = stderr(), time.monotonic()
    console.print("starting a master and a worker on this computer")
    async with started(grid, [WORKER], slots):
        if command:
            return await run_command(command, grid.environment(), grid.look_after)
        console.print(f"the grid is up after {time.monotonic() - began:.1f} s", soft_wrap=True)
        common.show({"master": grid.url, "token_file": str(grid.admin_token)}, lambda: _welcome(grid))
        raise grid.failure(await grid.ended())


def _welcome(grid: LocalGrid) -> str:
    """Return what to type now, in another terminal."""
    lines = [f"its page: {grid.url}, to sign in with the token in {grid.admin_token}", "in another terminal:"]
    if not _is_found(grid):
        lines.append(f"  export LOOPLINE_MASTER={grid.url} LOOPLINE_TOKEN_FILE={shlex.quote(str(grid.admin_token))}")
    lines += ["  loopline submit --wait --array 1-10 -- hostname", "  loopline top"]
    kept = "they continue when it is started again" if not grid.removes_folder else "--data-dir DIR would keep them"
    return "\n".join([*lines, f"Ctrl-C ends the grid with its jobs and results; {kept}"])


def _is_found(grid: LocalGrid) -> bool:
    """True if a command in another terminal finds the grid by itself."""
    settings = client_settings.ClientSettings.load()
    return settings.master == grid.url and settings.find_token() == grid.admin_token.read_text("utf-8").strip()
