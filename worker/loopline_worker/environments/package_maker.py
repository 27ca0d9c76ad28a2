"""The maker of environments of packages: uv, run as a task is, in the worker's sandbox and within its limits."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from loopline_worker.attempts import scratch
from loopline_worker.environments.build_error import BuildError
from loopline_worker.environments.environment import homes_of
from loopline_worker.environments.recipe import Recipe
from loopline_worker.environments.uv import Uv
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import DownloadError
from loopline_worker.launch.interface import Ended, Job, Launcher, Limits, Tree
from loopline_worker.supervisor import requests

_LONGEST_REASON = 400
_NO_WHEEL = "--allow-builds lets packages be built that have no wheel"
_NETWORK = ("error sending request", "failed to fetch", "request failed", "dns error", "connection", "timed out")
"""What uv says where the index cannot be reached, which is not the list's fault."""
_FOLDER, _PROGRAM, _FILE = 0o755, 0o755, 0o644
_PARTIAL = ".own"
"""Suffix of an environment while it is copied. The next agent removes it, as it is not complete."""


class PackageMaker:
    """Makes one environment of packages."""

    def __init__(self, uv: Uv, launcher: Launcher, cache: Cache, limits: Limits) -> None:
        self._cpu_s = 0.0
        self._uv = uv
        self._launcher = launcher
        self._cache = cache
        self._limits = limits
        self._tree: Tree | None = None
        self._is_frozen = False

    async def make(self, recipe: Recipe, folder: Path) -> dict[str, str]:
        """Make the environment in an empty folder. Raises BuildError or OSError."""
        if recipe.packages:
            await self._bring(recipe.packages, folder / "requirements.txt")
        for step in self._uv.steps(recipe, folder):
            await self._run(step, recipe, folder)
        await asyncio.to_thread(_add_cloudpickle, folder)
        await asyncio.to_thread(scratch.remove, scratch.temporary(folder))
        return {}

    def measure(self) -> float:
        """Return the CPU seconds that it has taken until now."""
        return self._cpu_s + (self._tree.measure().cpu_s if self._tree else 0.0)

    def kill(self) -> None:
        """Kill what runs."""
        if self._tree:
            self._tree.kill()

    def freeze(self) -> None:
        """Stop what runs until it is thawed."""
        self._is_frozen = True
        if self._tree:
            self._tree.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._is_frozen = False
        if self._tree:
            self._tree.thaw()

    async def _bring(self, sha256: str, target: Path) -> None:
        try:
            async with self._cache.hold(sha256) as path:
                await asyncio.to_thread(shutil.copyfile, path, target)
        except DownloadError as error:
            raise BuildError(f"the list of packages cannot be fetched: {error}", is_users=error.is_gone) from None

    async def _run(self, command: list[str], recipe: Recipe, folder: Path) -> None:
        """Run one step. Raises BuildError with the last lines of uv."""
        log = folder / "build.log"
        with log.open("wb") as file:
            self._tree = await self._launcher.start(self._job(command, recipe, folder), file.fileno(), file.fileno())
            if self._is_frozen:
                self._tree.freeze()
            try:
                ended = await self._ended(self._tree)
            finally:
                self._tree = None
        self._cpu_s += ended.cpu_s
        if ended.exit_code != 0 or ended.breach:
            said = log.read_text("utf-8", errors="replace")
            raise _error(ended, said, self._limits)
        if requests.inherited():
            await asyncio.to_thread(take_over, folder)

    async def _ended(self, tree: Tree) -> Ended:
        waiting = asyncio.create_task(tree.wait())
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            tree.thaw()
            tree.kill()
            await asyncio.wait([waiting])  # it would go on writing into a folder that is being removed
            raise

    def _job(self, command: list[str], recipe: Recipe, folder: Path) -> Job:
        scratch.temporary(folder).mkdir(exist_ok=True)
        homes = [str(Path(recipe.python).resolve().parents[1])] if "/" in recipe.python else []
        shown = [
            str(Path(self._uv.program).resolve()),
            *(one for one in homes if not one.startswith("/usr")),
            *homes_of(folder),
        ]
        variables = {**self._uv.variables(folder), scratch.VARIABLE: str(folder)}
        return Job(command, str(folder), variables, self._limits, network=True, shown=tuple(shown))


def _error(ended: Ended, said: str, limits: Limits) -> BuildError:
    if ended.breach:
        return BuildError(limits.words(ended.breach), is_users=True)
    if ended.trouble or ended.refusal or ended.exit_code is None or ended.exit_code < 0:
        return BuildError(ended.trouble or ended.refusal or "uv was killed by another program")
    lines = [line.strip().removeprefix("error: ").removeprefix("cause: ") for line in said.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Using Python", "Creating virtual", "Activate"))]
    reason = " ".join(lines)[:_LONGEST_REASON] or f"uv ended with exit code {ended.exit_code}"
    if "building source distributions is disabled" in said or "no usable wheels" in said.lower():
        reason = f"{reason[: _LONGEST_REASON - len(_NO_WHEEL)]}; {_NO_WHEEL}"
    return BuildError(reason, is_users=not any(word in said.lower() for word in _NETWORK))


def _add_cloudpickle(folder: Path) -> None:
    """Add the agent's cloudpickle, which function calls need, unless the packages have brought one."""
    spec = importlib.util.find_spec("cloudpickle")
    places = [*folder.glob("venv/lib/python*/site-packages"), *folder.glob("venv/Lib/site-packages")]
    if spec is None or not spec.submodule_search_locations or not places:
        return
    target = places[0] / "cloudpickle"
    with suppress(FileExistsError):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(spec.submodule_search_locations[0], target, ignore=ignored)


def take_over(folder: Path) -> None:
    """Copy a folder in place, so that the agent owns it and all users may read it. Raises BuildError, OSError.

    A task's user has built it and could change its own files later; no other user could trust such files. No process
    of that user may run, and the agent can read its files. Symbolic links stay as they are.
    """
    own = folder.with_name(folder.name + _PARTIAL)
    scratch.remove(own)
    try:
        shutil.copytree(folder, own, symlinks=True, copy_function=_copy)
    except (shutil.Error, RecursionError) as error:
        scratch.remove(own)
        reason = error.args[0][0][-1] if isinstance(error, shutil.Error) else "its folders are nested too deep"
        raise BuildError(f"what was built cannot be copied: {reason}", is_users=True) from None
    for place, _, _ in os.walk(own):
        os.chmod(place, _FOLDER)  # noqa: PTH101 - many folders
    scratch.remove(folder)
    own.rename(folder)


def _copy(source: str, target: str) -> None:
    """Copy one file with its time. A link to a file of the agent's would give that away."""
    status = os.lstat(source)
    if not stat.S_ISREG(status.st_mode) or (status.st_uid == os.geteuid() and status.st_nlink > 1):
        raise OSError(f"{source} is no file of its own")
    shutil.copyfile(source, target)
    os.chmod(target, _PROGRAM if status.st_mode & 0o100 else _FILE)  # noqa: PTH101
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
