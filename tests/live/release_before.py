"""The release before this one, built from the repository's own history, and the one after it, as far as links go."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from loopline_shared.protocol.worker_link import PROTOCOL_VERSION
from tests.live.grid import ROOT, Release

COMMIT = "00725fb"


def is_missing() -> str:
    """Return why the release before cannot be built here; empty if it can."""
    try:
        _git("cat-file", "-e", f"{COMMIT}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        return f"the repository's history does not reach back to commit {COMMIT}: fetch it whole"
    return ""


def install(folder: Path) -> Release:
    """Build the wheel of the release before and install it into an environment of its own below ``folder``."""
    return _install(_build(folder / "source", folder / "wheel"), folder / "environment", "master", "worker")


def _install(wheel: Path, environment: Path, master: str, worker: str) -> Release:
    venv.create(environment, symlinks=os.name != "nt")
    paths = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The libraries come from this environment. A folder that a .pth file names has its own .pth files ignored, and
    # comes last: so this release, whether installed there or in place, is hidden by the one before.
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    programs = Path(sysconfig.get_path("scripts", scheme="venv", vars=paths))
    return Release(str(programs / "python"), master, worker)


def install_after(folder: Path) -> Release:
    """Build this release with the link's version raised by one, and install it into an environment of its own."""
    source = folder / "source"
    wanted = shutil.ignore_patterns(".venv*", ".git", "node_modules", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, source, ignore=wanted)
    file = source / "shared/loopline_shared/protocol/worker_link.py"
    text = file.read_text()
    assert f"\nPROTOCOL_VERSION = {PROTOCOL_VERSION}\n" in text
    text = text.replace(
        f"\nPROTOCOL_VERSION = {PROTOCOL_VERSION}\n", f"\nPROTOCOL_VERSION = {PROTOCOL_VERSION + 1}\n"
    )
    text = re.sub(r"\nOLDEST_VERSION = \d+\n", f"\nOLDEST_VERSION = {PROTOCOL_VERSION}\n", text)
    file.write_text(text)
    return _install(_wheel_of(source, folder / "wheel"), folder / "environment", "loopline_master", "loopline_worker")


def _build(source: Path, into: Path) -> Path:
    source.mkdir()
    archive = source.with_suffix(".tar")
    _git("archive", "--format=tar", f"--output={archive}", COMMIT)
    subprocess.run(["tar", "-xf", archive, "-C", source], check=True)
    return _wheel_of(source, into)


def _wheel_of(source: Path, into: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(into)]
    subprocess.run(build, cwd=source, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = into.glob("*.whl")
    return wheel


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True)
