"""Serving the page: its policy and caching, no inline or external code; task output is never served as a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from loopline_master.dashboard.pages import add_page
from loopline_master.http.operations import problems
from tests.api.bench import Bench, done, until

DOCUMENT = '<!doctype html><script type="module" src="/assets/index-Ab3_dE9x.js"></script>' + "<p>hello</p>" * 100
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=|javascript:", re.IGNORECASE)
OUTSIDE = re.compile(r"""(?:src|href)=["']?(?:https?:)?//""", re.IGNORECASE)


@pytest.fixture
async def small(tmp_path: Path) -> TestClient:
    """A master with only a page."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(DOCUMENT)
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "assets" / "index-Ab3_dE9x.js").write_text("let a = 1;\n" * 100)
    app = web.Application()
    add_page(app.router, tmp_path)
    async with TestClient(TestServer(app), auto_decompress=False) as client:
        yield client


@pytest.mark.asyncio(loop_scope="module")
async def test_built_page_has_no_inline_and_no_external_code(shared_master: Bench) -> None:
    page = await shared_master.ask("GET", "//", None)
    assert page.status == 200
    text = page.content.decode()
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert not INLINE.search(text)
    assert not OUTSIDE.search(text)
    parts = re.findall(r"""(?:src|href)="(/[^"]+)\"""", text)
    assert any(part.endswith(".js") for part in parts)
    for part in parts:
        answer = await shared_master.ask("GET", f"/{part}", None)
        assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff"), part


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/jobs/12/tasks/3", "/workers/lab-pc-1", "/guarantee", "/master", "/submit", "/timeline"]
)
async def test_every_view_returns_the_page_with_a_strict_policy(small: TestClient, path: str) -> None:
    async with small.get(path, headers={"Accept-Encoding": "identity"}) as answer:
        assert (answer.status, await answer.text()) == (200, DOCUMENT)
        policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
        assert policy == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data: blob:",
            "connect-src": "'self'", "font-src": "'self'", "form-action": "'self'", "frame-ancestors": "'none'",
            "base-uri": "'none'", "object-src": "'none'", "frame-src": "'none'",
        }  # fmt: skip
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-cache"


async def test_hashed_assets_are_immutable_and_others_revalidated(small: TestClient) -> None:
    async with small.get("/assets/index-Ab3_dE9x.js", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding")
        assert len(await answer.read()) < 100
    async with small.get("/icon.svg") as answer:
        assert (answer.headers["Cache-Control"], answer.headers["Content-Type"]) == (
            "no-cache",
            "image/svg+xml; charset=utf-8",
        )
        tag = answer.headers["ETag"]
    async with small.get("/icon.svg", headers={"If-None-Match": tag}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/assets/../pages.py", "/assets/%2e%2e/pages.py", "/index.html", "/pages.py", "/api"]
)
async def test_other_files_are_not_served(small: TestClient, path: str) -> None:
    assert (await small.get(path)).status == 404


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", ["//nothing/<b>", "//manual/nothing", "//assets/nothing"])
async def test_unknown_address_is_a_page_in_a_browser(shared_master: Bench, path: str) -> None:
    answer = await shared_master.ask("GET", path, None, headers=BROWSER)
    text = answer.content.decode()
    assert (answer.status, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "There is no such page" in text
    assert 'href="/manual/"' in text
    assert "<b>" not in text
    assert "style-src 'sha256-" in answer.headers["Content-Security-Policy"]
    assert (await shared_master.ask("GET", path, None)).body["status"] == 404, "programs get problem+json"


@pytest.mark.asyncio(loop_scope="module")
async def test_unknown_address_of_the_api_returns_a_problem(shared_master: Bench) -> None:
    answer = await shared_master.ask("GET", "/jobs/9", headers=BROWSER)
    assert (answer.status, answer.body["code"]) == (404, "not_found")


async def test_master_without_a_built_page_says_so(tmp_path: Path) -> None:
    app = web.Application(middlewares=[problems])
    add_page(app.router, tmp_path / "nothing")
    async with TestClient(TestServer(app)) as client, client.get("/") as answer:
        assert (answer.status, (await answer.json(content_type=None))["code"]) == (404, "no_page")


async def test_task_output_is_never_served_as_a_page(master: Bench) -> None:
    job = await master.submit()
    script = b"<!doctype html><script>alert(1)</script>"

    async with master.worker(does=lambda run: done(run, script)):

        async def is_over() -> bool:
            return (await master.get(f"/jobs/{job}"))["finished_at"] is not None

        await until(is_over)
    output = await master.ask("GET", f"/jobs/{job}/tasks/1/stdout")
    assert output.content == script
    assert output.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert output.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in output.headers["Content-Security-Policy"]
    for path in ("/jobs", "//openapi.json", "/jobs/99", "//nowhere"):
        assert "sandbox" in (await master.ask("GET", path)).headers["Content-Security-Policy"], path
