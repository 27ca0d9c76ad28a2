"""A client that openapi-python-client generates submits, reads and streams, without a patch. It comes from PyPI."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from loopline_master.http.openapi import document
from loopline_master.http.routes import all_operations
from tests.live.grid import Grid

PROGRAM = """
import sys
sys.path.insert(0, "loopline-client")
from loopline_client import AuthenticatedClient
from loopline_client.api.jobs import get_job, submit_job
from loopline_client.api.streams import stream_results
from loopline_client.api.tasks import get_stdout, list_tasks
from loopline_client.models.job_spec import JobSpec

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True, timeout=60)
spec = JobSpec(command=["echo", "hi"], size=3.0)
job = submit_job.sync(client=client, body=spec, idempotency_key="one").id
assert submit_job.sync(client=client, body=spec, idempotency_key="one").id == job
assert stream_results.sync_detailed(job=job, client=client).parsed, "until the job has ended"
assert get_job.sync(job=job, client=client).state == "succeeded"
assert list_tasks.sync(job=job, client=client).items[0].id == f"{job}.1"
assert get_stdout.sync(job=job, task=1, client=client) == "hi\\n"
"""


async def run(folder: Path, *command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.campaign
async def test_a_generated_client_submits_reads_and_streams(tmp_path: Path) -> None:
    python = str(tmp_path / "venv" / "bin" / "python")
    await run(tmp_path, sys.executable, "-m", "venv", "venv")
    await run(tmp_path, python, "-m", "pip", "install", "--quiet", "openapi-python-client")
    (tmp_path / "openapi.json").write_text(json.dumps(document(all_operations())))
    said = await run(tmp_path, python, "-m", "openapi_python_client", "generate", "--path", "openapi.json")
    assert "WARNING" not in said, said
    grid = Grid(tmp_path / "grid")
    grid.folder.mkdir()
    try:
        await grid.start_master()
        await grid.start_worker("ant")
        token = (grid.data_dir / "tokens" / "admin").read_text().strip()
        await run(tmp_path, python, "-c", PROGRAM, grid.url, token)
    finally:
        await grid.stop()
