"""Files by content: what tasks take and what they leave, each under the SHA-256 of its bytes."""

from __future__ import annotations

from aiohttp import web

from master.api.operations import Routes
from master.api.parameters import FileHash
from master.api.services import Services, found
from master.auth import ALL, STORERS

routes = Routes("files")

BYTES = "application/octet-stream"
_CHUNK_BYTES = 2**20
_HEADERS = {"Content-Type": BYTES, "Cache-Control": "private, max-age=31536000, immutable"}


@routes("PUT /files/{sha256}", STORERS, status=204, takes=BYTES, declines=(413, 507))
async def put_file(services: Services, request: web.Request, sha256: FileHash) -> web.Response:
    """Store a file. Its content must have this SHA-256; storing it again changes nothing."""
    await services.blobs.put(sha256, request.content.iter_chunked(_CHUNK_BYTES), request.content_length or 0)
    return web.Response(status=204)


@routes("HEAD /files/{sha256}", ALL, media_type=BYTES)
async def head_file(services: Services, sha256: FileHash) -> web.FileResponse:
    """Whether a file is here, and how long it is."""
    return _file(services, sha256)


@routes("GET /files/{sha256}", ALL, media_type=BYTES)
async def get_file(services: Services, sha256: FileHash) -> web.FileResponse:
    """A file, or a range of its bytes."""
    return _file(services, sha256)


def _file(services: Services, sha256: str) -> web.FileResponse:
    return web.FileResponse(found(services.blobs.find(sha256), f"file {sha256}"), headers=_HEADERS)
