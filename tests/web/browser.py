"""The system's own Chromium, with a record of its pages: each request and each complaint."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize, async_playwright, expect

from tests.live.grid import Grid

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ON_MACOS = [f"/Applications/{name}.app/Contents/MacOS/{name}" for name in ("Chromium", "Google Chrome")]
_OF_A_DESKTOP = ["WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess"]
"""Features that tests do not need: the first two draw the lists under the address bar of each window."""
_OF_PLAYWRIGHT = """AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose HttpsUpgrades
    HttpsFirstBalancedModeAutoEnable LensOverlay MediaRouter PaintHolding ThirdPartyStoragePartitioning
    AvoidCorsURLLoaderRestartOnRedirect OptimizationHints NetworkTimeServiceQuerying AimEnabled PreconnectToSearch"""
"""Features that Playwright turns off: Chromium uses only the last of several --disable-features."""
FLAGS = [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-gpu",
    f"--disable-features={','.join([*_OF_A_DESKTOP, *_OF_PLAYWRIGHT.split()])}",
]
PATIENCE_MS = 60_000
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
_CALM = {"viewport": DESKTOP, "locale": "en-GB", "color_scheme": "light", "reduced_motion": "reduce"}
_SETTLED_S, _STARTED_MS = 30.0, 100_000
_READING = re.compile("^Reading .* …$")
AXE = Path(__file__).parent / "axe" / "axe.min.js"
REFUSED = "status of 401"  # the browser's complaint about a wrong token
AWAY = "net::ERR_"  # ... and about an unreachable master
_AXE_RUN = """(options) => axe.run(document, {resultTypes: ["violations"], selectors: false, ...options})
  .then((found) => found.violations)"""
"""Only violations are described and sent here: the rest would double the time."""
_TURN_TO = """(path) => {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
_WATCH_POLICY = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} by ${event.blockedURI}`));"""


def chromium() -> str:
    """Return its path. Without one a test is skipped, or fails with LOOPLINE_REQUIRE_BROWSER=1."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    found = found or next((path for path in ON_MACOS if Path(path).exists()), None)
    if found is None:
        reason = "no Chromium is installed (Debian: apt install chromium)"
        if os.environ.get("LOOPLINE_REQUIRE_BROWSER") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as home:
        async with async_playwright() as playwright:
            own = {**os.environ, "HOME": home}  # a browser writes there
            browser = await playwright.chromium.launch(
                executable_path=chromium(), args=FLAGS, env=own, timeout=_STARTED_MS
            )
            try:
                yield browser
            finally:
                await browser.close()


@dataclass
class Visit:
    """One visitor's browser: a page, with its requests and complaints."""

    url: str
    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def open(self, path: str = "/") -> None:
        await self.page.goto(self.url + path)

    async def sign_in(self, token: str, path: str = "/") -> None:
        await self.open(path)
        await self.page.get_by_label("Token").fill(token)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.get_by_role("navigation", name="Pages").wait_for()

    async def forget(self) -> None:
        """Forget earlier requests, complaints and stored state; the visitor stays signed in."""
        await self.page.evaluate("sessionStorage.clear(); localStorage.clear()")
        self.requests.clear()
        self.complaints.clear()

    async def show(self, path: str = "/") -> None:
        """Load the page at a view, until all its data is loaded."""
        await self.open(path)
        await self.page.get_by_role("navigation", name="Pages").wait_for()
        await expect(self.page.get_by_role("status").filter(has_text="live")).to_be_visible()
        await expect(self.page.get_by_text(_READING)).to_have_count(0)

    async def turn_to(self, path: str, heading: str) -> None:
        """Show another view of the open page, as its links do, and wait until all its data is loaded."""
        await self.page.evaluate(_TURN_TO, path)
        await self.page.get_by_role("heading", level=1, name=re.compile(f"^{heading}")).wait_for()
        await expect(self.page.get_by_text(_READING)).to_have_count(0)

    async def too_narrow(self) -> list[int]:
        """Return the widths, of a desktop and of a phone, that make the page scroll sideways."""
        found = []
        for size in (PHONE, DESKTOP):
            await self.page.set_viewport_size(size)
            if not await self._comes_to_fit():
                found.append(size["width"])
        return found

    async def _comes_to_fit(self) -> bool:
        """Wait for the new layout, which follows a moment later. False if it does not fit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_S):
                while await self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                    await asyncio.sleep(0.02)  # polls
                return True
        return False

    async def barriers(self) -> list[str]:
        """Return accessibility violations found by axe-core, in light and in dark: rule, element, reason."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        found = await self._violations("light", {})
        found += await self._violations("dark", {"runOnly": ["color-contrast"]})  # the rest does not change
        await self.page.emulate_media(color_scheme="light")
        return found

    async def _violations(self, scheme: Literal["light", "dark"], options: dict[str, Any]) -> list[str]:
        await self.page.emulate_media(color_scheme=scheme)
        found = await self.page.evaluate(_AXE_RUN, options)
        return [
            f"{scheme}: {one['id']}: {node['html'][:160]}: {node['failureSummary']}"
            for one in found
            for node in one["nodes"]
        ]

    @asynccontextmanager
    async def in_zone(self, zone: str) -> AsyncIterator[None]:
        """Show times of this zone in the block."""
        told = await self.page.context.new_cdp_session(self.page)
        try:
            await told.send("Emulation.setTimezoneOverride", {"timezoneId": zone})
            yield
        finally:
            await told.detach()

    def check(self, *expected: str) -> None:
        """Check that the page sent requests only to its master, and had only ``expected`` complaints."""
        outside = [url for url in self.requests if not url.startswith((self.url, "data:", "blob:"))]
        assert not outside, outside
        odd = [complaint for complaint in self.complaints if not any(part in complaint for part in expected)]
        assert not odd, odd

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")


@asynccontextmanager
async def visiting(browser: Browser, url: str, **options: Any) -> AsyncIterator[Visit]:
    """A visitor who has never been here. ``options``: of the browser's context, such as viewport."""
    context = await browser.new_context(**{**_CALM, **options})
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield await _visit(context, url)
    finally:
        await context.close()


async def _visit(context: BrowserContext, url: str) -> Visit:
    await context.add_init_script(_WATCH_POLICY)
    visit = Visit(url, await context.new_page())
    context.on("request", lambda request: visit.requests.append(request.url))
    context.on("console", visit._heard)
    context.on("weberror", lambda error: visit.complaints.append(str(error.error)))
    return visit


def admin(grid: Grid) -> str:
    """Return the token of the grid's admin."""
    return (grid.data_dir / "tokens" / "admin").read_text().strip()
