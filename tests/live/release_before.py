"""The release before this one, built from the repository's own history and installed beside this one."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

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
    wheel = _build(folder / "source", folder / "wheel")
    environment = folder / "environment"
    venv.create(environment, symlinks=os.name != "nt")
    paths = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The libraries come from this environment. A folder that a .pth file names has its own .pth files ignored, and
    # comes last: so this release, whether installed there or in place, is hidden by the one before.
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    programs = Path(sysconfig.get_path("scripts", scheme="venv", vars=paths))
    return Release(str(programs / "python"), "master", "worker")


def _build(source: Path, into: Path) -> Path:
    source.mkdir()
    archive = source.with_suffix(".tar")
    _git("archive", "--format=tar", f"--output={archive}", COMMIT)
    subprocess.run(["tar", "-xf", archive, "-C", source], check=True)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(into)]
    subprocess.run(build, cwd=source, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = into.glob("*.whl")
    return wheel


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True)
