"""A bench with interpreters, and helpers that make calls."""

from __future__ import annotations

import base64
import hashlib
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from loopline_shared.model import Function, Outcome, Result
from loopline_shared.protocol import chunks
from loopline_shared.protocol.chunks import CRASHED, ends, join
from loopline_shared.protocol.worker_link import Run
from loopline_worker.files.downloads import DownloadError
from loopline_worker.functions.launcher import FunctionLauncher
from tests.worker.bench import Bench, run_of


class Folder:
    """Content-addressed files, as at a master."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def add(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        (self._folder / sha256).write_bytes(content)
        return f"sha256:{sha256}"

    @asynccontextmanager
    async def hold(self, sha256: str) -> AsyncIterator[Path]:
        if not (self._folder / sha256).exists():
            raise DownloadError("the master has no such file", is_gone=True)
        yield self._folder / sha256


class Caller:
    """Makes calls on ``bench``."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.files = Folder(bench.folder / "files")
        self.warm = FunctionLauncher(bench.launcher, self.files)
        bench.runner._launcher = self.warm
        self._calls = 0

    def run(self, function: Callable[..., Any], *args: Any, session: str = "s", **options: Any) -> Run:
        self._calls += 1
        file = self.files.add(chunks.function_file(cloudpickle.dumps(function)))
        call = base64.b64encode(cloudpickle.dumps((args, {}))).decode()
        asked = Function(file=file, python="3.11", session=session)
        return run_of(task=self._calls, **{"parameters": {"call": call}, "function": asked, **options})

    def chunk(self, function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> Run:
        """A task that makes several calls."""
        self._calls += 1
        arguments = base64.b64encode(join(cloudpickle.dumps(call) for call in calls)).decode()
        file = self.files.add(chunks.function_file(cloudpickle.dumps(function)))
        count = len(calls)
        asked = Function(file, "3.11", "s", chunk=count, calls=count * self._calls)
        return run_of(task=self._calls, **{"parameters": {"call": arguments}, "function": asked, **options})

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Result:
        return await self.bench.result(self.run(function, *args, **options))

    async def value(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = await self.call(function, *args, **options)
        assert (result.outcome, result.reason) == (Outcome.SUCCEEDED, ""), result
        return value_of(result)


def ends_of(result: Result) -> list[tuple[int, Any]]:
    assert result.value
    return [
        (how, text.decode() if how == CRASHED else pickle.loads(text)) for how, _, text in ends(result.value.data)
    ]


def value_of(result: Result) -> Any:
    assert result.value
    return pickle.loads(result.value.data)
