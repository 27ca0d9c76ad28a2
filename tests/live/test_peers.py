"""Files between workers, on a real grid: everything comes from the others where it can, and nothing wrong comes."""

from __future__ import annotations

import os
from pathlib import Path

from loopline.transfer import files
from loopline_shared.model import JobState
from tests.live.grid import Grid

PEERS = ("--lease-s", "2", "--report-every-s", "0.5", "--peers", "on", "--peer-file-bytes", str(2**20))


async def test_the_second_worker_takes_a_file_from_the_first(grid: Grid, tmp_path: Path) -> None:
    await grid.kill_master()
    await grid.start_master(*PEERS)
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(2**20) * 8)
    sha256 = await files.upload(grid.client(), large)
    await grid.start_worker("ant")
    inputs = {"large.bin": f"sha256:{sha256}"}
    assert (await grid.ended(await grid.submit("sha256sum large.bin", inputs=inputs))).state is JobState.SUCCEEDED
    await grid.start_worker("bee")
    job = await grid.submit("sha256sum large.bin", inputs=inputs)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
