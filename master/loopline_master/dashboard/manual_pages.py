"""Serves the manual under /manual/, as `make manual` has built it; its search too needs no other host.

The content security policy of each page names the scripts in it by their hashes, and forbids all others.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from aiohttp import web

from loopline_master.dashboard.pages import Asset, load
from loopline_shared.errors import LooplineError

BUILT = Path(__file__).parents[1] / "manual"
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def add_manual(router: web.UrlDispatcher, folder: Path = BUILT) -> None:
    """Add the routes of the manual, which are open to all."""
    manual = Manual(folder)
    router.add_get("/manual", _to_its_start)
    router.add_get("/manual/{path:.*}", manual.show)


async def _to_its_start(request: web.Request) -> web.Response:
    raise web.HTTPMovedPermanently("/manual/")


class Manual:
    """The files of a built manual, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files by their path in the address."""
        files = (file for file in self._folder.rglob("*") if file.is_file())
        return {file.relative_to(self._folder).as_posix(): file for file in files}

    async def show(self, request: web.Request) -> web.Response:
        """Return a file of the manual. Raises LooplineError if there is none, or the manual was not built."""
        if not self.files:
            raise LooplineError(
                "no_manual", "this master's manual was not built", "make manual builds it", status=404
            )
        file = self.files.get(request.match_info["path"] or "index.html")
        if file is None:
            message = f"the manual has no page {request.match_info['path']}"
            raise LooplineError("not_found", message, "/manual/ has its contents", status=404)
        return (await asyncio.to_thread(_asset, file)).answer(request)


def _asset(file: Path) -> Asset:
    asset = load(file, "no-cache")
    scripts = _SCRIPT.findall(asset.content) if file.suffix == ".html" else []
    hashes = sorted({base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts})
    return replace(asset, policy=_POLICY.format(scripts="".join(f" 'sha256-{digest}'" for digest in hashes)))
