"""joblib's own tests of its backends, with a grid in place of its processes."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.live.grid import Grid

CHECK = Path(__file__).with_name("joblib_conformance.py")


@pytest.mark.campaign
async def test_joblibs_own_tests_pass(grid: Grid) -> None:
    grid.sandbox = "auto"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # socket paths must be short
        await grid.start_worker("ant", "--sandbox-show", folder, slots=2)
        await grid.connected("ant")
        token = (grid.data_dir / "tokens" / "admin").read_text().strip()
        environment = {**os.environ, "LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token, "TMPDIR": folder}
        check = await asyncio.create_subprocess_exec(
            sys.executable, str(CHECK), "-p", "no:xdist", env=environment, cwd=folder, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(check.communicate(), 600)
    assert "joblib conformance: PASS" in said.decode(), said.decode()[-4000:]
