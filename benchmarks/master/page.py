"""Speed of the page's timeline in headless Chromium, which draws by software here, with generated bars.

The page is the master's (built by `make web`), under the same policy; this program answers its requests. First draw:
from the last byte of the answer to bars on the canvas, parsing included; the median of five. Update: the same for an
answer with 20 new bars and 20 that have grown. Frames: time between two frames while the wheel pans the chart.

    python benchmarks/master/page.py [--bars 2000 10000 50000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from playwright.async_api import Browser, Page, async_playwright

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_master.dashboard.pages import ASSETS, add_page

WORKERS = 40
SLOTS = 4
JOBS = 24
WINDOW_S = 6 * 3600.0
UPDATES = 30
FIRST_DRAWS = 5
NEW_BARS = 20
FRAMES = 60
SEED = 7
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
Json = dict[str, Any]

_DRAWN_AFTER = """() => {
  const answers = performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/timeline?"));
  const drawn = performance.getEntriesByName("bars-drawn").at(-1);
  const answer = answers.at(-1);
  return drawn && answer && drawn.startTime > answer.responseEnd
    ? {count: answers.length, ms: drawn.startTime - answer.responseEnd, whole: drawn.startTime} : null;
}"""
_PAN = """(count) => new Promise((resolve) => {
  const canvas = document.querySelector("canvas");
  const times = [];
  let before = performance.now();
  function frame(now) {
    times.push(now - before);
    before = now;
    if (times.length > count) return resolve(times.slice(1));
    const deltaX = times.length % 2 ? 40 : -40;
    canvas.dispatchEvent(new WheelEvent("wheel", {deltaX, cancelable: true}));
    requestAnimationFrame(frame);
  }
  requestAnimationFrame(frame);
})"""


class Grid:
    """A grid made up: back to back attempts on all slots, some of them replicas, beaten, failed or frozen."""

    def __init__(self, bars: int) -> None:
        self._random = random.Random(SEED)
        self._now = time.time()
        self._rows: list[list[Any]] = []
        self._changes: asyncio.Queue[None] = asyncio.Queue()
        each = bars // (WORKERS * SLOTS)
        for slot in range(WORKERS * SLOTS):
            self._fill(slot // SLOTS, each, WINDOW_S / each)

    def app(self) -> web.Application:
        app = web.Application()
        prefix = "/api/v1"
        answers: Json = {
            "/session": {"name": "bench", "role": "reader", "version": "0"},
            "/queue": [],
            "/jobs": {"items": [], "next": None},
            "/workers": {"items": [], "next": None},
            "/passing": {"order": "hold", "completions": 0, "passings": 0, "excused": {}, "latest": []},
        }
        for path, answer in answers.items():
            app.router.add_get(prefix + path, _always(answer))
        app.router.add_get(prefix + "/timeline", self._timeline)
        app.router.add_get(prefix + "/events", self._events)
        add_page(app.router)
        return app

    def go_on(self) -> None:
        """20 attempts end, and 20 others take their place."""
        self._now = time.time()
        running = [row for row in self._rows if row[6] is None][:NEW_BARS]
        for row in running:
            row[6], row[3], row[8] = self._now, "succeeded", 1
            self._add(row[1], self._now, None, "running")
        self._changes.put_nowait(None)

    def _fill(self, worker: int, count: int, each_s: float) -> None:
        end = self._now - WINDOW_S
        for place in range(count):
            start, end = end, end + each_s * self._random.uniform(0.6, 1.4)
            is_last = place == count - 1
            self._add(worker, start, None if is_last else min(end, self._now), "running" if is_last else None)

    def _add(self, worker: int, start: float, end: float | None, state: str | None) -> None:
        state = state or self._random.choices(("succeeded", "cancelled", "failed"), (94, 5, 1))[0]
        job = self._random.randrange(JOBS)
        frozen = [[start + 0.3, start + 0.6]] if self._random.random() < 0.02 else None
        replica, accepted = int(self._random.random() < 0.05), int(state == "succeeded")
        self._rows.append([len(self._rows), worker, job, state, replica, start, end, frozen, accepted])

    async def _timeline(self, request: web.Request) -> web.Response:
        since = float(request.query["since"])
        seen = [row for row in self._rows if row[6] is None or row[6] >= since]
        return _zipped({
            "since": since, "until": self._now, "truncated": False, "held": [],
            "workers": [f"pc-{number:02}" for number in range(WORKERS)],
            "jobs": [{"id": number + 1, "name": f"job {number + 1}"} for number in range(JOBS)],
            "bars": {
                "attempt": [f"{row[2] + 1}.{row[0]}.1" for row in seen],
                "worker": [row[1] for row in seen], "job": [row[2] for row in seen],
                "state": [row[3] for row in seen],
                "replica": [row[4] for row in seen], "accepted": [row[8] for row in seen],
                "dispatched": [round(row[5], 3) for row in seen], "start": [round(row[5], 3) for row in seen],
                "end": [row[6] and round(row[6], 3) for row in seen], "frozen": [row[7] for row in seen],
                "ran": [None for _ in seen],
            },
        })  # fmt: skip

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        change = {"jobs": [], "workers": [], "missed": True}
        while True:
            await response.write(b"event: change\ndata: " + json.dumps(change).encode() + b"\n\n")
            await self._changes.get()
            change = {"jobs": [1], "workers": [], "missed": False}


def _always(answer: Any) -> Any:
    async def answering(_: web.Request) -> web.Response:
        return web.json_response(answer)

    return answering


def _zipped(answer: Json) -> web.Response:
    body = gzip.compress(json.dumps(answer).encode(), 3)
    return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})


@asynccontextmanager
async def serving(grid: Grid) -> AsyncIterator[str]:
    runner = web.AppRunner(grid.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{site.port}"
    finally:
        await runner.cleanup()


async def measure(browser: Browser, bars: int) -> Json:
    grid = Grid(bars)
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    await context.add_init_script("performance.setResourceTimingBufferSize(5000)")
    page = await context.new_page()
    async with serving(grid) as url:
        firsts = [await _opened(page, f"{url}/timeline?span={WINDOW_S:.0f}") for _ in range(FIRST_DRAWS)]
        updates = [await _update(page, grid, firsts[-1]["count"] + number) for number in range(UPDATES)]
        frames = await page.evaluate(_PAN, FRAMES)
        await context.close()
    return {
        "bars": bars,
        "first_draw_ms": round(statistics.median(first["ms"] for first in firsts), 1),
        "page_to_draw_ms": round(statistics.median(first["whole"] for first in firsts), 1),
        "update_p50_ms": round(statistics.median(updates), 1),
        "update_p95_ms": round(_p95(updates), 1),
        "frame_p50_ms": round(statistics.median(frames), 1),
        "frame_p95_ms": round(_p95(frames), 1),
    }


async def _opened(page: Page, url: str) -> Json:
    await page.goto(url)
    return await _drawn(page, 0)


async def _update(page: Page, grid: Grid, seen: int) -> float:
    grid.go_on()
    drawn: float = (await _drawn(page, seen))["ms"]
    return drawn


async def _drawn(page: Page, seen: int) -> Json:
    """Return the times of the first drawing after more than ``seen`` answers."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        drawn: Json | None = await page.evaluate(_DRAWN_AFTER)
        if drawn and drawn["count"] > seen:
            return drawn
        await asyncio.sleep(0.02)
    raise SystemExit("the page has drawn nothing within 30 s")


def _p95(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.95 * (len(ordered) - 1))]


def transferred_bytes() -> int:
    """All that a browser fetches to show the page, zipped as the master sends it."""
    files = [ASSETS / "index.html", *(ASSETS / "assets").iterdir()]
    return sum(len(gzip.compress(file.read_bytes())) for file in files)


async def run(sizes: list[int]) -> list[Json]:
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no Chromium is installed (Debian: apt install chromium)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            return [await measure(browser, bars) for bars in sizes]
        finally:
            await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bars", type=int, nargs="+", default=[2000, 10_000, 50_000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(run(options.bars))
    if options.json:
        print(json.dumps({"transferred_bytes": transferred_bytes(), "timeline": found}))
        return
    print(f"the whole page: {transferred_bytes() / 1000:.1f} kB, zipped")
    names = list(found[0])
    print("  ".join(f"{name:>15}" for name in names))
    for row in found:
        print("  ".join(f"{row[name]:>15,}" for name in names))


if __name__ == "__main__":
    main()
