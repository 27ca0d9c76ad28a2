"""Serves the page: its document at every path of its views, and its assets, which browsers may cache for ever.

The content security policy forbids inline scripts and anything from other hosts.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from aiohttp import web

from loopline_shared.errors import LooplineError

ASSETS = Path(__file__).with_name("assets")
VIEWS = ("timeline", "jobs", "workers", "guarantee", "master", "submit")
"""First parts of the paths of the page's views."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'; "
    "frame-src 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # for browsers without frame-ancestors
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HASHED = "/assets/"  # the names of its files change with their content
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_FIRST = "no-cache"
_KINDS = {  # fixed here: the table of the operating system may differ
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".txt": "text/plain",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_TEXT = ("text/", "application/json", "image/svg+xml")
_WORTH_IT_BYTES = 500
_STYLE = """:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 40rem; margin: 15vh auto; padding: 0 1rem }
a { color: LinkText; margin-right: 1.5rem }"""
_STYLE_POLICY = (
    "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NOT_FOUND = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Not found – Loopline</title>
<style>{style}</style>
<main>
<h1>There is no such page</h1>
<p>{said}</p>
<p><a href="/">Overview</a><a href="/manual/">Manual</a><a href="/docs">REST API</a></p>
</main>
"""


@dataclass(frozen=True)
class Asset:
    """An asset of the page, ready to be sent."""

    content: bytes
    content_type: str
    cache: str
    tag: str
    policy: str = POLICY

    @cached_property
    def zipped(self) -> bytes | None:
        """The content compressed; None if compression would gain too little."""
        is_worth_it = self.content_type.startswith(_TEXT) and len(self.content) > _WORTH_IT_BYTES
        return gzip.compress(self.content, mtime=0) if is_worth_it else None

    def answer(self, request: web.Request) -> web.Response:
        """Return the asset, or 304 if the browser has it."""
        headers = {
            **_HEADERS,
            "Content-Security-Policy": self.policy,
            "Cache-Control": self.cache,
            "ETag": f'"{self.tag}"',
            "Vary": "Accept-Encoding",
        }
        if self.tag in {tag.value for tag in request.if_none_match or ()}:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = self.content_type
        if "gzip" in request.headers.get("Accept-Encoding", "") and self.zipped is not None:
            return web.Response(body=self.zipped, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=self.content, headers=headers)


def wants_page(request: web.Request) -> bool:
    """Return True for a browser that opens an address: programs and scripts of a page do not ask for HTML."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("Accept", "")


def not_found(said: str) -> web.Response:
    """Return a page for people that says that there is no such page."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    headers = {**_HEADERS, "Content-Security-Policy": _STYLE_POLICY.format(digest)}
    sentence = f"{said[:1].upper()}{said[1:].rstrip('.')}."
    text = _NOT_FOUND.format(style=_STYLE, said=escape(sentence))
    return web.Response(status=404, text=text, content_type="text/html", headers=headers)


def add_page(router: web.UrlDispatcher, folder: Path = ASSETS) -> None:
    """Add the routes of the page. They are open to all: the data that the page shows is fetched with a session."""
    assets = dict(_load_all(folder))
    document = assets.pop("/index.html", None)

    async def show(request: web.Request) -> web.Response:
        if document is None:
            raise LooplineError("no_page", "this master's page was not built", "make web builds it", status=404)
        return document.answer(request)

    async def fetch(request: web.Request) -> web.Response:
        return assets[request.path].answer(request)

    router.add_get("/", show)
    for view in VIEWS:
        router.add_get(f"/{view}", show)
        router.add_get(f"/{view}/{{rest:.*}}", show)
    for path in assets:
        router.add_get(path, fetch)


def _load_all(folder: Path) -> Iterator[tuple[str, Asset]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            path = f"/{file.relative_to(folder).as_posix()}"
            yield path, load(file, _FOR_EVER if path.startswith(_HASHED) else _ASK_FIRST)


def load(file: Path, cache: str) -> Asset:
    """Return a file as an asset; ``cache``: the value of Cache-Control."""
    content = file.read_bytes()
    kind = _KINDS.get(file.suffix, "application/octet-stream")
    content_type = f"{kind}; charset=utf-8" if kind.startswith(_TEXT) else kind
    return Asset(content, content_type, cache, hashlib.sha256(content).hexdigest()[:32])
