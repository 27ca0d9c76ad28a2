"""Heap of the page over busy minutes: JSHeapUsedSize of headless Chromium after a collection, by view.

The grid is that of viewer.py: a real master, queued jobs, and a swarm of light workers. Each view is a page of its
own, open all the time. The first minutes fill the bounded buffers (bars, samples, kept answers); the heap must not
grow after them: ``grows`` is the median of the last third less that of the middle third.

    python -m benchmarks.master.heap [--minutes 10] [--jobs 2000] [--workers 200] [--views / /jobs] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from statistics import median
from typing import Any

from playwright.async_api import CDPSession, async_playwright

from benchmarks.master.viewer import CHROMIUM, busy_grid, parser

VIEWS = ("/", "/jobs", "/timeline", "/workers")
EVERY_S = 30.0


async def used_mb(session: CDPSession) -> float:
    """Return what is on the heap after a full collection."""
    await session.send("HeapProfiler.collectGarbage")
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    (used,) = (float(one["value"]) for one in metrics if one["name"] == "JSHeapUsedSize")
    return round(used / 1e6, 2)


async def watch(url: str, views: list[str], minutes: float) -> dict[str, list[float]]:
    """Return the heap of each view, every half minute."""
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no Chromium is installed (Debian: apt install chromium)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        sessions = {}
        for view in views:
            context = await browser.new_context()  # of its own: a page in the background rests
            page = await context.new_page()
            sessions[view] = session = await context.new_cdp_session(page)
            await session.send("Performance.enable")
            await session.send("HeapProfiler.enable")
            await page.goto(url + view)
        heap: dict[str, list[float]] = {view: [] for view in views}
        for _ in range(round(minutes * 60 / EVERY_S)):
            await asyncio.sleep(EVERY_S)
            for view, session in sessions.items():
                heap[view].append(await used_mb(session))
        await browser.close()
    return heap


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    async with busy_grid(options) as grid:
        began = grid.tally.acknowledged
        watching = asyncio.create_task(watch(grid.url, options.views, options.minutes))
        await asyncio.wait([watching, grid.bringing], return_when=asyncio.FIRST_COMPLETED)
        if grid.bringing.done():
            watching.cancel()
            await grid.bringing  # which says why
        found, results = await watching, grid.tally.acknowledged - began
    rows = []
    for view, heap in found.items():
        third = len(heap) // 3
        grows = round(median(heap[-third:]) - median(heap[third : 2 * third]), 2)
        rows.append({"view": view, "heap_mb": heap, "grows_mb": grows, "results": results})
    return rows


def main() -> None:
    asking = parser(__doc__, VIEWS)
    asking.add_argument("--minutes", type=float, default=10)
    options = asking.parse_args()
    rows = asyncio.run(run(options))
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{rows[0]['results']} results came meanwhile; heap in MB after a collection, every {EVERY_S:g} s")
    for row in rows:
        print(f"{row['view']:12} grows {row['grows_mb']:6} MB  {' '.join(f'{one:.1f}' for one in row['heap_mb'])}")


if __name__ == "__main__":
    main()
