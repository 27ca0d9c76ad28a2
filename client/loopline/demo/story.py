"""The story of the demo: a long job, a smaller one that overtakes it, and one of equal size that must not."""

from __future__ import annotations

import asyncio
import struct
import sys
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from rich.console import Console

from loopline.cli.follow import outcome, show_until_over
from loopline.cli.render.bars import bars
from loopline.client import AsyncClient
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, TaskId
from loopline_shared.rest.bodies import JobDetail
from loopline_shared.spec import JobSpec

STRIPS = 24
THROWS = 1_500_000
_TASKS = Path(__file__).parent / "tasks"


def _job(name: str, size: float, script: str, *arguments: str, **parameters: list[int]) -> JobSpec:
    command = [sys.executable, "-I", str(_TASKS / script), *arguments]
    grid = {parameter: {"range": bounds} for parameter, bounds in parameters.items()}
    return JobSpec.model_validate({"name": name, "size": size, "command": command, "parameters": grid})


JOBS = (
    _job("mandelbrot", 15, "mandelbrot.py", "--strip", "{strip}", "--of", str(STRIPS), strip=[1, STRIPS]),
    _job("pi", 5, "pi.py", "--seed", "{seed}", "--throws", str(THROWS), seed=[1, 6]),
    _job("pi-again", 5, "pi.py", "--seed", "{seed}", "--throws", str(THROWS), seed=[7, 12]),
)
"""Jobs with sizes near their real duration; the third is as large as the second, so that it must wait for it."""


async def tell(client: AsyncClient, console: Console) -> list[JobDetail]:
    """Submit the jobs, and show their progress until all are over."""
    numbers = [(await client.submit(job)).id for job in JOBS]
    with bars(console) as show:

        async def follow(number: int) -> JobDetail:
            view = await show_until_over(client, number, show)
            console.print(outcome(view))
            return view

        views = await asyncio.gather(*map(follow, numbers))
    for view in views:
        if view.state != JobState.SUCCEEDED:
            raise LooplineError("demo", f"job {view.id} {view.name} {view.state}, which it never should")
    return views


async def draw(client: AsyncClient, job: JobDetail, file: Path) -> None:
    """Put the strips that the tasks printed together, as a picture."""
    rows = [bytes.fromhex(line) for strip in await _printed(client, job) for line in strip.split()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png(rows))


async def estimate(client: AsyncClient, jobs: Sequence[JobDetail]) -> float:
    """Return pi, from the output of the tasks of these jobs."""
    return fmean([float(text) for job in jobs for text in await _printed(client, job)])


async def _printed(client: AsyncClient, job: JobDetail) -> list[str]:
    """Return the output of each task of a job, in the order of tasks."""
    tasks = (TaskId(job.id, number) for number in range(1, job.task_count + 1))
    return [b"".join([piece async for piece in client.output(task)]).decode() for task in tasks]


_STOPS = ((0, 7, 60), (32, 107, 203), (237, 255, 255), (255, 170, 0), (120, 20, 40), (0, 7, 60))
"""Colours that levels 1 to 255 run through, and back; level 0, inside the set, is black."""


def png(rows: Sequence[bytes]) -> bytes:
    """Return a PNG picture of rows with a byte, the number of its colour, for each pixel."""
    head = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    pixels = b"".join(b"\0" + row for row in rows)
    chunks = ((b"IHDR", head), (b"PLTE", palette()), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def palette() -> bytes:
    """Return 256 colours of three bytes."""
    steps = 255 // (len(_STOPS) - 1)
    colours = [bytes(3)]
    for start, end in pairwise(_STOPS):
        colours += [_mix(start, end, step / steps) for step in range(steps)]
    return b"".join(colours)


def _mix(start: Sequence[int], end: Sequence[int], share: float) -> bytes:
    return bytes(round(a + (b - a) * share) for a, b in zip(start, end, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
