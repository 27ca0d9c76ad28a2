"""Download of a task's newest checkpoint."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from loopline.client import AsyncClient
from loopline.transfer import files
from loopline.transfer.downloads import OutputFolder
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId
from loopline_shared.protocol import saved_state
from loopline_shared.protocol.saved_state import SavedFile, SavedState


async def fetch(client: AsyncClient, task: TaskId, folder: Path) -> dict[str, Any]:
    """Download the newest checkpoint of a task into a folder that is there. Return the document of ``--json``.

    Raises LooplineError if there is none, or files of it are missing.
    """
    known = await client.checkpoints(task)
    if not known:
        hint = "its job must be submitted with --checkpoint; a task that succeeded keeps none"
        raise LooplineError("no_checkpoint", f"task {task} has no checkpoint", hint, status=404)
    with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=folder) as place:
        pieces = Path(place)
        state = saved_state.decode((await _download(client, known[0].manifest, pieces)).read_bytes())
        await files.in_parallel(sorted(state.pieces()), lambda piece: _download(client, piece, pieces))
        await asyncio.to_thread(_write, state, pieces, folder)
    return {"task": str(task), "folder": str(folder), "files": len(state.files), "cpu_s": known[0].cpu_s}


async def _download(client: AsyncClient, sha256: str, place: Path) -> Path:
    target = place / sha256
    await files.download(client, sha256, target, place / f"{sha256}.part")
    return target


def _write(state: SavedState, pieces: Path, folder: Path) -> None:
    target = OutputFolder(folder)
    for path, file in state.files.items():
        place = target.target(path)
        place.write_bytes(b"")
        _join(file, pieces, place)
        place.chmod(file.mode | 0o600)
    for name, written in (("stdout", state.stdout), ("stderr", state.stderr)):
        if written:
            _join(written, pieces, target.target(f".{name}"))


def _join(file: SavedFile, pieces: Path, place: Path) -> None:
    left, offset = file.size_bytes, file.offset
    with place.open("wb") as sink:
        for piece in file.pieces:
            part = (pieces / piece).read_bytes()[offset : offset + left]
            sink.write(part)
            left, offset = left - len(part), 0
