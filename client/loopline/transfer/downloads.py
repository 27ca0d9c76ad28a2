"""Files that tasks left, brought home: what is there already is not fetched again, what broke off is gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from loopline.rest_client import RestClient
from loopline.transfer import files
from loopline.transfer.files import Tell
from loopline_shared.errors import LooplineError
from loopline_shared.model import OutputFile, TaskId
from loopline_shared.rest.bodies import OutputFiles

PARTS = ".loopline-fetch"
"""Where files are while they come; gone when all of them are here."""


@dataclass
class DownloadCount:
    fetched: int = 0
    present: int = 0
    bytes: int = 0


class OutputFolder:
    """A folder of the user's. Nothing is written outside it, whatever a file is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = folder.resolve()
        self._parts = folder / PARTS

    async def bring(
        self,
        client: RestClient,
        task: TaskId,
        outputs: Sequence[OutputFile],
        place: str,
        tell: Tell = lambda count: None,
    ) -> DownloadCount:
        """The files of a task, below ``place``; LooplineError where one is not kept any more."""
        brought = DownloadCount()
        for file in outputs:
            target = self.target(f"{place}/{file.path}")
            if await asyncio.to_thread(_is_here, target, file):
                brought.present += 1
                tell(file.size_bytes)
                continue
            await self._fetch(client, task, file, target, tell)
            brought.fetched += 1
            brought.bytes += file.size_bytes
        return brought

    def clear(self) -> None:
        """Everything is here: no parts are left."""
        if self._parts.is_dir() and not any(self._parts.iterdir()):
            self._parts.rmdir()

    async def _fetch(self, client: RestClient, task: TaskId, file: OutputFile, target: Path, tell: Tell) -> None:
        self._parts.mkdir(exist_ok=True)
        part = self._parts / f"{task}-{file.sha256}"
        try:
            await files.download(client, file.sha256, target, part, tell)
        except LooplineError as error:
            if error.status != 404:
                raise
            path = quote(file.path)
            async with client.http.open("GET", f"/jobs/{task.job}/tasks/{task.task}/outputs/{path}"):
                raise  # this would have said why it is gone

    def target(self, path: str) -> Path:
        """Where a file goes, in a folder that is there; LooplineError where a link of before leads elsewhere."""
        target = self.folder.joinpath(*path.split("/"))
        if not target.parent.resolve().is_relative_to(self._root):
            message = f"{target.parent} leads out of {self.folder}"
            raise LooplineError("folder", message, "remove the link, or name another folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


async def outputs_of(client: RestClient, task: TaskId) -> list[OutputFile]:
    answer = await client.http.ask(OutputFiles, "GET", f"/jobs/{task.job}/tasks/{task.task}/outputs")
    return answer.items


def _is_here(target: Path, file: OutputFile) -> bool:
    try:
        is_same_size = not target.is_symlink() and target.stat().st_size == file.size_bytes
        return is_same_size and files.hash_of(target) == file.sha256
    except OSError:
        return False
