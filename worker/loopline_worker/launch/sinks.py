"""Where a task's output goes: an open file, or a sink that keeps what it is fed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Sink(Protocol):
    """One stream of one attempt. All of it is fed, or written to the pipe, before its tree's ``wait`` is over."""

    def feed(self, data: bytes) -> None: ...

    async def open(self) -> int:
        """The end of a pipe to write to instead; for the caller to close. OSError where there can be none."""


Target = int | Sink


@asynccontextmanager
async def opened(*targets: Target) -> AsyncIterator[list[int]]:
    """Files for a task to write to, for those who hand them over; closed here afterwards where they are a sink's."""
    files: list[int] = []
    pipes: list[int] = []
    try:
        for target in targets:
            if isinstance(target, int):
                files.append(target)
            else:
                pipes.append(await target.open())
                files.append(pipes[-1])
        yield files
    finally:
        for pipe in pipes:
            os.close(pipe)
