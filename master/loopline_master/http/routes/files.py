"""Files by content: inputs and outputs of tasks, each under the SHA-256 of its bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from aiohttp import web

from loopline_master import timings
from loopline_master.files.blobs import WHOLE, Blobs, Span
from loopline_master.files.file_store import seal_of
from loopline_master.files.upload_turns import UploadTurns
from loopline_master.files.user_files import UserFiles
from loopline_master.files.whole_files import WholeFiles
from loopline_master.http.answers import StoredFile, begin_stream
from loopline_master.http.auth import ALL, STORERS, WORKERS, Caller
from loopline_master.http.lookups import found
from loopline_master.http.operations import PROBLEM_JSON, Routes, too_slow
from loopline_master.http.parameters import ContentRange, FileHash
from loopline_master.peers.piece_lists import PieceLists
from loopline_shared.checksums import HEADER
from loopline_shared.errors import LooplineError
from loopline_shared.rest import stakes
from loopline_shared.rest.direct import ELSEWHERE, DirectUpload
from loopline_shared.rest.direct import HEADER as DIRECT

routes = Routes("files")

BYTES = "application/octet-stream"
_CHUNK_BYTES = 2**20
_HEADERS = {"Content-Type": BYTES, "Cache-Control": "private, max-age=31536000, immutable"}
_SEALED = {"media_type": BYTES, "headers": {HEADER: "BLAKE3 of the whole file, where the master knows it"}}


@routes("PUT /files/{sha256}", STORERS, is_audited=False, status=204, takes=BYTES, declines=(409, 413, 429, 507))
async def put_file(
    blobs: Blobs,
    turns: UploadTurns,
    users: UserFiles,
    caller: Caller,
    request: web.Request,
    sha256: FileHash,
    content_range: ContentRange | None = None,
) -> web.Response:
    """Store a file. Its content must have this SHA-256; storing it again changes nothing.

    An interrupted upload can be resumed: HEAD answers 404 with an Upload-Offset, and a PUT with Content-Range
    brings the rest from there on.
    """
    span = _span(content_range) if content_range else WHOLE
    content = _in_time(request.content.iter_chunked(_CHUNK_BYTES))
    announced_bytes = request.content_length or 0
    if caller.role == "worker" or await asyncio.to_thread(blobs.retain, sha256) is not None:
        try:
            await blobs.put(sha256, content, announced_bytes, span)
        finally:
            turns.arrived(sha256)
        return web.Response(status=204)
    await users.check(caller.name, announced_bytes)
    async with aclosing(users.counted(caller.name, content)) as counted:
        if await blobs.put(sha256, counted, announced_bytes, span):
            size_bytes = await asyncio.to_thread(blobs.retain, sha256)
            await users.add(caller.name, sha256, size_bytes or 0)
    return web.Response(status=204)


async def _in_time(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces of a body. Raises LooplineError if the next one does not arrive in time."""
    while True:
        try:
            async with asyncio.timeout(timings.UPLOAD_PIECE_WITHIN_S):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise too_slow() from None
        if piece is None:
            return
        yield piece


@routes("HEAD /files/{sha256}", ALL, **_SEALED)
async def head_file(
    blobs: Blobs,
    whole: WholeFiles,
    users: UserFiles,
    turns: UploadTurns,
    caller: Caller,
    request: web.Request,
    sha256: FileHash,
) -> web.StreamResponse:
    """Return the size of a file, which is then retained for a while, so that a job can name it.

    If it is not stored, Upload-Offset says how much of an interrupted upload has arrived.
    """
    size_bytes = await asyncio.to_thread(blobs.retain, sha256)
    if size_bytes is not None:
        await users.arrived(caller.name, sha256, size_bytes)
        if not blobs.store.is_near:
            return await begin_stream(request, {**_HEADERS, "Content-Length": str(size_bytes)})
        with suppress(LooplineError):  # damaged: it has to be sent again
            return await _file(blobs, whole, sha256)
    headers = {}
    if offset := blobs.unfinished_bytes(sha256):
        headers["Upload-Offset"] = str(offset)
    if not offset and caller.role in STORERS and (place := await _place(blobs, users, caller, request, sha256)):
        headers[DIRECT] = place.encode()
    elif caller.role == "worker" and not await _has_turn(turns, request, sha256):
        return web.Response(status=stakes.WAIT, content_type=PROBLEM_JSON)
    return web.Response(status=404, headers=headers, content_type=PROBLEM_JSON)


async def _has_turn(turns: UploadTurns, request: web.Request, sha256: str) -> bool:
    """Wait for the turn of a checkpoint's piece. False if it should be asked for again; other files need none."""
    if stakes.HEADER not in request.headers:
        return True
    try:
        size_bytes, stake = stakes.decode(request.headers[stakes.HEADER])
        async with asyncio.timeout(timings.TURN_WITHIN_S):
            await turns.wait(sha256, size_bytes, stake)
    except ValueError:
        raise LooplineError(
            "stake", f"{stakes.HEADER} has no size and stake", "update the worker", status=422
        ) from None
    except TimeoutError:
        return False
    return True


async def _place(
    blobs: Blobs, users: UserFiles, caller: Caller, request: web.Request, sha256: str
) -> DirectUpload | None:
    """Return where the caller may upload a file directly; None also beyond the user's limit, which PUT reports."""
    said = request.headers.get(DIRECT, "")
    place = blobs.direct_upload(sha256, int(said)) if said.isascii() and said.isdecimal() else None
    if place is not None and caller.role != "worker":
        try:
            await users.check(caller.name, int(said))
        except LooplineError:
            return None
        users.expect(caller.name, sha256, int(said))
    return place


@routes("GET /files/{sha256}", ALL, **_SEALED)
async def get_file(blobs: Blobs, whole: WholeFiles, request: web.Request, sha256: FileHash) -> web.StreamResponse:
    """Return a file, or a range of its bytes."""
    if DIRECT in request.headers and (url := await blobs.direct_url(sha256)):
        return web.Response(status=ELSEWHERE, headers={"Location": url, "Cache-Control": "no-store"})
    return await _file(blobs, whole, sha256)


@routes("GET /files/{sha256}/pieces", WORKERS, is_documented=False)
async def get_pieces(lists: PieceLists, sha256: FileHash) -> web.Response:
    """Return the hashes of a file's pieces (loopline_shared/pieces.py), for workers that get it from one another."""
    return web.Response(body=found(await lists.get(sha256), f"file {sha256}"), content_type=BYTES)


def _span(content_range: str) -> Span:
    start, last, total = (int(number) for number in re.findall(r"\d+", content_range))
    if start > last or last + 1 != total:
        message = f"{content_range} does not reach to the end of the file"
        raise LooplineError("content_range", message, "send the whole rest of the file", status=422)
    return Span(start, total)


async def _file(blobs: Blobs, whole: WholeFiles, sha256: str) -> web.FileResponse:
    path = found(await whole.find(sha256), f"file {sha256}")
    seal = seal_of(path)
    answer = StoredFile(path, _HEADERS | {HEADER: seal} if seal else _HEADERS)
    whole.while_sent(sha256, answer.cut_off)
    return answer
