"""Targets of a task's output: an open file, or a sink that keeps its data."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Sink(Protocol):
    """Stream of one attempt. All of it is fed, or written to the pipe, before the tree's ``wait`` is over."""

    def feed(self, data: bytes) -> None:
        """Add output."""

    async def open(self) -> int:
        """Return the end of a pipe to write to instead, for the caller to close. Raises OSError."""


Target = int | Sink


@asynccontextmanager
async def opened(*targets: Target) -> AsyncIterator[list[int]]:
    """Open a file for each target that a task writes to. Pipes to sinks are closed at the end."""
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
