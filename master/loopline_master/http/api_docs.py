"""The OpenAPI document, and a page to read and try the API: Swagger UI, served from this master's own disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

from aiohttp import web

from loopline_master.http.answers import json_answer
from loopline_master.http.auth import OPEN
from loopline_master.http.operations import Routes

routes = Routes("docs", prefix="")


class ApiDocument:
    """The OpenAPI document: made on the first request for it, because that takes a while."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = cache(make)

    async def text(self) -> str:
        """Return the document as JSON."""
        return await asyncio.to_thread(self._make)


_SWAGGER_UI = Path(__file__).with_name(
    "swagger_ui"
)  # the files of the npm package swagger-ui-dist 5.35.0 that the page needs
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Loopline: REST API</title>
<link rel="icon" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/init.js"></script>
</body>
</html>
"""
_SCRIPT = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  validatorUrl: null,
  persistAuthorization: false,
});
"""


@routes("GET /openapi.json", OPEN, is_documented=False)
async def get_document(document: ApiDocument, request: web.Request) -> web.Response:
    """Return the OpenAPI document."""
    return await json_answer(request, (await document.text()).encode())


@routes("GET /docs", OPEN, is_documented=False)
async def get_docs() -> web.Response:
    """Return the page."""
    return _own(_PAGE, "text/html")


@routes("GET /docs/init.js", OPEN, is_documented=False)
async def get_docs_script() -> web.Response:
    """Return the script that starts the page."""
    return _own(_SCRIPT, "text/javascript")


@routes("GET /docs/{name}", OPEN, is_documented=False)
async def get_docs_file(
    name: Literal["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"],
) -> web.FileResponse:
    """Return a file of Swagger UI."""
    return web.FileResponse(_SWAGGER_UI / name)


def _own(text: str, content_type: str) -> web.Response:
    return web.Response(text=text, content_type=content_type, headers={"Content-Security-Policy": _POLICY})
