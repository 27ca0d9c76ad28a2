"""Downloads of the outputs of tasks: complete files are not fetched again, and interrupted transfers resume."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from loopline.rest_client import RestClient
from loopline.transfer import files
from loopline.transfer.files import OnProgress
from loopline_shared.errors import LooplineError
from loopline_shared.model import OutputFile, TaskId
from loopline_shared.rest.bodies import OutputFiles

PARTS = ".loopline-fetch"
"""Folder of files while they are downloaded; removed when all of them are complete."""


@dataclass
class DownloadCount:
    """Files and bytes of one download."""

    fetched: int = 0
    present: int = 0
    bytes: int = 0


class OutputFolder:
    """A folder of the user's that outputs are downloaded to. Nothing is written outside it, whatever their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = folder.resolve()
        self._parts = folder / PARTS

    async def download(
        self,
        client: RestClient,
        task: TaskId,
        outputs: Sequence[OutputFile],
        place: str,
        on_progress: OnProgress = lambda count: None,
    ) -> DownloadCount:
        """Download the files of a task, below ``place``. Raises LooplineError if one is no longer kept."""
        count = DownloadCount()
        for file in outputs:
            target = self.target(f"{place}/{file.path}")
            if await asyncio.to_thread(_is_here, target, file):
                count.present += 1
                on_progress(file.size_bytes)
                continue
            await self._fetch(client, task, file, target, on_progress)
            if file.executable:
                target.chmod(target.stat().st_mode | 0o111)
            count.fetched += 1
            count.bytes += file.size_bytes
        return count

    def clear(self) -> None:
        """Remove the folder of partial files if it is empty."""
        if self._parts.is_dir() and not any(self._parts.iterdir()):
            self._parts.rmdir()

    async def _fetch(
        self, client: RestClient, task: TaskId, file: OutputFile, target: Path, on_progress: OnProgress
    ) -> None:
        self._parts.mkdir(exist_ok=True)
        part = self._parts / f"{task}-{file.sha256}"
        try:
            await files.download(client, file.sha256, target, part, on_progress)
        except LooplineError as error:
            if error.status != 404:
                raise
            path = quote(file.path)
            async with client.http.open("GET", f"/jobs/{task.job}/tasks/{task.task}/outputs/{path}"):
                raise  # unless this answers with the reason

    def target(self, path: str) -> Path:
        """Return where a file goes, and make its folder. Raises LooplineError if a link leads outside."""
        target = self.folder.joinpath(*path.split("/"))
        if not target.parent.resolve().is_relative_to(self._root):
            message = f"{target.parent} leads out of {self.folder}"
            raise LooplineError("folder", message, "remove the link, or name another folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


async def outputs_of(client: RestClient, task: TaskId) -> list[OutputFile]:
    """Return the outputs of a task, as the master lists them."""
    answer = await client.http.ask(OutputFiles, "GET", f"/jobs/{task.job}/tasks/{task.task}/outputs")
    return answer.items


def _is_here(target: Path, file: OutputFile) -> bool:
    try:
        is_same_size = not target.is_symlink() and target.stat().st_size == file.size_bytes
        return is_same_size and files.hash_of(target) == file.sha256
    except OSError:
        return False
