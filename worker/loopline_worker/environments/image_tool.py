"""Container images: fetched and unpacked by podman or docker, whose own processes no task ever runs in.

A task runs in the worker's sandbox, with the image's files in place of the computer's: it is frozen for the owner,
limited and ended as every other task, and no daemon with a root's power is between it and its worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_worker.environments.build_error import BuildError
from loopline_worker.environments.recipe import Recipe
from loopline_worker.settings import ImageSource

if TYPE_CHECKING:
    import tarfile

_LONGEST_REASON = 300
_UNKNOWN = ("manifest unknown", "not found", "denied", "unauthorized", "short-name", "invalid reference")
"""What is said of an image that no worker could fetch."""
_FOLDERS = ("proc", "dev", "tmp")
_EMPTY_FILES = ("etc/resolv.conf", "etc/hosts")


class ImageTool:
    """The program podman or docker."""

    def __init__(self, program: str, scratch_folder: Path = Path("/")) -> None:
        """``scratch_folder``: the folder of all tasks' folders, which an unpacked image gets a place for."""
        self._program = program
        self._scratch_folder = scratch_folder
        self._process: asyncio.subprocess.Process | None = None
        self._is_frozen = False

    def another(self, scratch_folder: Path) -> ImageTool:
        """Return the same for another image."""
        return ImageTool(self._program, scratch_folder)

    async def make(self, recipe: Recipe, folder: Path) -> dict[str, str]:
        """Unpack an image into ``root`` of the folder. Return the variables that it sets. Raises BuildError, OSError.

        An image that is not here is fetched, and not kept twice: it leaves the program's own store again.
        """
        image = recipe.image
        is_here = await self._succeeds("image", "inspect", image)
        if not is_here:
            await self._run("pull", "--quiet", image)
        try:
            described = json.loads(await self._run("image", "inspect", image))[0]
            archive = folder / "image.tar"
            container = (await self._run("create", image, "/bin/true")).strip()
            try:
                await self._run("export", "--output", str(archive), container)
            finally:
                await self._succeeds("rm", "--force", container)
        finally:
            if not is_here:
                await self._succeeds("image", "rm", image)
        await asyncio.to_thread(_extract, archive, folder / "root")
        await asyncio.to_thread(_add_points, folder / "root", self._scratch_folder)
        pairs = [one.partition("=") for one in described.get("Config", {}).get("Env") or ()]
        return {name: value for name, _, value in pairs}

    def measure(self) -> float:
        """Return zero: fetching an image takes little of the processor, and docker's part cannot be measured."""
        return 0.0

    def signal(self, number: int) -> None:
        """Signal all processes of the program."""
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill what runs."""
        self.signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop what runs until it is thawed."""
        self._is_frozen = True
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._is_frozen = False
        self.signal(signal.SIGCONT)

    async def _succeeds(self, *arguments: str) -> bool:
        try:
            await self._run(*arguments)
        except BuildError:
            return False
        return True

    async def _run(self, *arguments: str) -> str:
        self._process = await asyncio.create_subprocess_exec(
            self._program, *arguments, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        if self._is_frozen:
            self.signal(signal.SIGSTOP)
        try:
            out, err = await self._process.communicate()
        except asyncio.CancelledError:
            self.kill()
            raise
        if self._process.returncode:
            said = err.decode(errors="replace").strip().splitlines() or [f"exit code {self._process.returncode}"]
            reason = f"{Path(self._program).name} {arguments[0]}: {said[-1]}"[-_LONGEST_REASON:]
            raise BuildError(reason, is_users=any(word in said[-1].lower() for word in _UNKNOWN))
        return out.decode(errors="replace")


def find(source: ImageSource) -> ImageTool | None:
    """Return the program that the setting allows; None if it is not installed."""
    program = None if source is ImageSource.OFF else shutil.which(source)
    return ImageTool(program) if program else None


def _extract(archive: Path, root: Path) -> None:
    """Extract an image, without its devices and the owners of its files, which only root could make.

    Everybody may read all of it, for a task may run as another user than this one. Raises BuildError if a file of it
    would come to lie, or link to one, outside.
    """
    import tarfile

    root.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isreg() or member.isdir() or member.issym() or member.islnk():
                _check_place(member, root)
                mode = (member.mode | (0o755 if member.isdir() else 0o444)) & 0o755
                mode |= 0o111 if mode & 0o100 else 0
                member.mode, member.uid, member.gid, member.uname, member.gname = (
                    mode,
                    os.getuid(),
                    os.getgid(),
                    "",
                    "",
                )
                tar.extract(member, root, numeric_owner=True)
    archive.unlink()


def _add_points(root: Path, scratch_folder: Path) -> None:
    """Add what this computer's own folders and files are mounted on, as a task starts."""
    for path in (*_FOLDERS, os.path.realpath(scratch_folder)[1:], "etc"):
        point = root
        for name in Path(path).parts:
            point /= name
            if point.is_symlink() or not point.is_dir():
                point.unlink(missing_ok=True)
                point.mkdir()
    for name in _EMPTY_FILES:
        (root / name).unlink(missing_ok=True)
        (root / name).touch()
        (root / name).chmod(0o644)
    for place, _, _ in os.walk(root):  # including parents that the archive does not name
        os.chmod(place, 0o755)  # noqa: PTH101, S103


def _check_place(member: tarfile.TarInfo, root: Path) -> None:
    places = [os.path.dirname(member.name) if member.issym() else member.name]  # noqa: PTH120
    places += [member.linkname] if member.islnk() else []
    for place in places:
        if not Path(os.path.realpath(root / place.lstrip("/"))).is_relative_to(os.path.realpath(root)):
            raise BuildError(f"the image has a file outside itself: {member.name[:200]}", is_users=True)
