"""Checkpoints on a bench: they stay on the local disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

from loopline_worker.checkpoints.checkpoint_wing import Checkpoints
from loopline_worker.checkpoints.local_store import LocalStore
from loopline_worker.checkpoints.tools import CheckpointTools
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import Downloads
from loopline_worker.files.uploads import Uploads
from loopline_worker.link.http_client import HttpClient
from loopline_worker.settings import WorkerSettings
from tests.worker.bench import Bench


@asynccontextmanager
async def local_checkpoints(bench: Bench) -> AsyncIterator[LocalStore]:
    """Let tasks take checkpoints, which stay on this disk."""
    allowance = NetworkAllowance(bench.folder / "traffic")
    allowance.why_closed = "closed"
    settings = WorkerSettings.load(master="http://127.0.0.1:1", data_dir=bench.folder, token="x")
    store = LocalStore(bench.folder / "checkpoints")
    async with HttpClient(settings) as client:
        wing = Checkpoints(
            store,
            lambda: CheckpointTools(
                worker="w1",
                store=store,
                cache=Cache(bench.folder / "cache", 2**30, Downloads(client)),
                uploads=Uploads(client, allowance=allowance),
                allowance=allowance,
                task_group=bench.task_group,
                free_bytes=lambda: 2**40,
            ),
        )
        wing.attach(SimpleNamespace(life="", is_in_use=False, is_stopping=False, speak=lambda: None))
        bench.runner._wings = [wing]
        yield store
        wing.close()
