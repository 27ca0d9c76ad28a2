"""Uploads and downloads of files, which are named by the SHA-256 of their content.

Interrupted transfers resume at the byte that the receiver has reached. A download is checked before it takes its
name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from loopline.http import UnavailableError
from loopline.rest_client import RestClient
from loopline.transfer import direct
from loopline_shared.errors import LooplineError
from loopline_shared.rest.direct import HEADER, DirectUpload

AT_ONCE = 4
_PIECE_BYTES = 2**20
_TRIES_AT_CONTENT = 3

OnProgress = Callable[[int], None]
"""Callback with the number of bytes that were transferred; negative if some must be transferred again."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this computer that is an input of tasks, or a link or an empty folder."""

    path: Path
    size_bytes: int
    executable: bool = False
    sha256: str = ""  # set once it is hashed; a link or folder has none
    link: str = ""  # where it leads
    is_folder: bool = False

    @property
    def has_content(self) -> bool:
        return not (self.link or self.is_folder)

    def as_input(self) -> str | dict[str, str | bool]:
        """Return the input as a job spec names it."""
        if self.is_folder:
            return {"folder": True}
        if self.link:
            return {"link": self.link}
        name = f"sha256:{self.sha256}"
        return {"file": name, "executable": True} if self.executable else name


async def upload(
    client: RestClient, source: Path | bytes, on_progress: OnProgress = lambda count: None, sha256: str = ""
) -> str:
    """Upload a file unless the master has it, and return its SHA-256 once the master has it on disk.

    ``sha256``: the file's hash, if it is known. Raises LooplineError if the master refuses the file.
    """
    sha256 = sha256 or await asyncio.to_thread(hash_of, source)
    patience, told, is_resumed, is_anew = client.http.patience(), 0, False, False

    def on_total(count: int) -> None:
        nonlocal told
        if count > told:
            patience.restart()
        on_progress(count - told)
        told = count

    while True:
        try:
            offset = await _offset(client, sha256, _size(source))
            if offset is None:
                on_total(_size(source))
                return sha256
            if isinstance(offset, DirectUpload):
                await _send(client, sha256, source, offset, on_total)
                continue
            is_resumed, offset = bool(offset) and not is_anew, 0 if is_anew else offset
            on_total(offset)
            await _put(client, sha256, source, offset, on_total)
        except UnavailableError as fault:
            await patience.after(fault)
        except LooplineError as error:
            if error.code == "wrong_hash" and is_resumed:  # the part on the master may be of other content
                is_anew = True
                continue
            if error.code != "upload_offset":  # another upload of the file is under way
                raise
            await patience.after(UnavailableError(error, may_have_acted=False))


async def missing(client: RestClient, files: Iterable[LocalFile]) -> list[LocalFile]:
    """Return those of the files, each content once, that the master does not have as a whole."""
    found: list[LocalFile] = []

    async def check(file: LocalFile) -> None:
        if await _offset(client, file.sha256, file.size_bytes) is not None:
            found.append(file)

    await in_parallel(files, check)
    return found


async def upload_all(
    client: RestClient, files: Iterable[LocalFile], on_progress: OnProgress = lambda count: None
) -> None:
    """Upload several files at once, each content once."""
    contents = {file.sha256: file for file in files if file.has_content}

    async def upload_one(file: LocalFile) -> None:
        try:
            await upload(client, file.path, on_progress, file.sha256)
        except LooplineError as error:
            message = f"{file.path} has changed while it was being uploaded" if error.code == "wrong_hash" else ""
            message = error.message if error.status == 401 else message
            raise LooplineError(
                error.code, message or f"{file.path}: {error.message}", error.hint, error.status
            ) from None

    await in_parallel(contents.values(), upload_one)


async def hash_all(
    files: Mapping[str, LocalFile], on_progress: OnProgress = lambda count: None
) -> dict[str, LocalFile]:
    """Return the files with their SHA-256. Raises OSError if one cannot be read."""
    hashed = {name: file for name, file in files.items() if not file.has_content}

    async def add(item: tuple[str, LocalFile]) -> None:
        name, file = item
        hashed[name] = replace(file, sha256=await asyncio.to_thread(hash_of, file.path))
        on_progress(file.size_bytes)

    await in_parallel([item for item in files.items() if item[1].has_content], add)
    return {name: hashed[name] for name in files}


async def download(
    client: RestClient, sha256: str, file: Path, part: Path, on_progress: OnProgress = lambda count: None
) -> None:
    """Download a file by way of ``part``, which is on the same disk and may have its beginning already.

    Raises LooplineError if the master does not have it (status 404), or if the hash differs.
    """
    patience = client.http.patience()
    for _ in range(_TRIES_AT_CONTENT):
        while True:
            begun = _size(part) if part.exists() else 0
            try:
                await _get(client, sha256, part, begun, on_progress)
                break
            except UnavailableError as fault:
                if part.exists() and _size(part) > begun:
                    patience.restart()
                await patience.after(fault)
        if await asyncio.to_thread(hash_of, part) == sha256:
            part.replace(file)
            return
        on_progress(-_size(part))
        part.unlink()
    message = f"what {client.master} sends as {sha256} is something else"
    raise LooplineError("wrong_hash", message, "its disk, or the way to it, may be broken", status=502)


def hash_of(source: Path | bytes) -> str:
    """Return the SHA-256 of a file or of bytes."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def in_parallel(items: Collection[Item] | Iterable[Item], act: Callable[[Item], object]) -> None:
    """Act on several items at once; the first failure ends all."""
    places = asyncio.Semaphore(AT_ONCE)

    async def act_on(item: Item) -> None:
        try:
            await act(item)  # type: ignore[misc]
        finally:
            places.release()

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                await places.acquire()
                group.create_task(act_on(item))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _offset(client: RestClient, sha256: str, size_bytes: int) -> int | DirectUpload | None:
    """Return how many bytes of an upload the master has, or where else it is to go; None if it has the whole file."""
    asked = client.http.direct.asked(size_bytes)
    async with client.http.open("HEAD", f"/files/{sha256}", allow=(404,), headers=asked) as answer:
        if answer.status == 200:
            return None
        place = answer.headers.get(HEADER)
        return DirectUpload.decode(place) if place else int(answer.headers.get("Upload-Offset", 0))


async def _send(
    client: RestClient, sha256: str, source: Path | bytes, place: DirectUpload, on_total: OnProgress
) -> None:
    """Send a file past the master. Raises UnavailableError, also if the master does not find it afterwards."""
    content = _rest(source, 0, on_total)
    async with aclosing(content):
        await direct.send(client, place, _size(source), content)
    if await _offset(client, sha256, 0) is not None:
        error = LooplineError("bucket", "the master does not find what was sent to its bucket", status=503)
        raise UnavailableError(error, may_have_acted=False)


async def _put(client: RestClient, sha256: str, source: Path | bytes, offset: int, on_total: OnProgress) -> None:
    size_bytes = _size(source)
    offset = offset if offset < size_bytes else 0
    headers = {"Content-Length": str(size_bytes - offset)}
    if offset:
        headers["Content-Range"] = f"bytes {offset}-{size_bytes - 1}/{size_bytes}"
    content = _rest(source, offset, on_total)
    async with aclosing(content), client.http.open("PUT", f"/files/{sha256}", data=content, headers=headers):
        on_total(size_bytes)


async def _rest(source: Path | bytes, offset: int, on_total: OnProgress) -> AsyncGenerator[bytes, None]:
    if isinstance(source, bytes):
        yield source[offset:]
        return
    with source.open("rb") as file:
        file.seek(offset)
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
            on_total(file.tell())


async def _get(client: RestClient, sha256: str, part: Path, begun: int, on_progress: OnProgress) -> None:
    headers = {"Range": f"bytes={begun}-"} if begun else {}
    async with direct.opened(client, sha256, allow=(416,), headers=headers) as answer:
        if answer.status == 416:  # the part is complete
            return
        with part.open("ab" if answer.status == 206 else "wb") as file:
            if answer.status != 206:
                on_progress(-begun)
            async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                await asyncio.to_thread(file.write, piece)
                on_progress(len(piece))


def _size(source: Path | bytes) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size
