"""Serving the manual: only its own scripts may run; a master without a built manual says how to build it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from loopline_master.dashboard.manual_pages import add_manual
from loopline_master.http.operations import problems

SCRIPT = "let theme = 1;"
PAGE = f'<!doctype html><script>{SCRIPT}</script><script src="a.js"></script>'


def serving(folder: Path) -> TestClient:
    app = web.Application(middlewares=[problems])
    add_manual(app.router, folder)
    return TestClient(TestServer(app))


async def test_manual_page_may_run_only_its_own_scripts(tmp_path: Path) -> None:
    (tmp_path / "design").mkdir()
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "design" / "a.html").write_text("<p>")
    (tmp_path.parent / "secret.html").write_text("secret")
    async with serving(tmp_path) as client:
        start = await client.get("/manual")
        assert (start.status, await start.text(), start.url.path) == (200, PAGE, "/manual/")
        digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
        assert f"script-src 'self' 'sha256-{digest}';" in start.headers["Content-Security-Policy"]
        other = await client.get("/manual/design/a.html")
        assert "script-src 'self';" in other.headers["Content-Security-Policy"]
        for path in ("/manual/none.html", "/manual/..%2fsecret.html"):
            assert (await client.get(path)).status == 404


async def test_master_without_a_built_manual_says_how_to_build_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "none") as client:
        answer = await client.get("/manual/")
        assert (answer.status, (await answer.json())["code"]) == (404, "no_manual")
