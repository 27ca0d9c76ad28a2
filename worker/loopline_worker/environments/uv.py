"""uv, which installs packages: where it is on this computer, and which Pythons it finds there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from loopline_worker.environments.recipe import Recipe

_WITHIN_S = 20.0
_VERSIONS = [f"3.{minor}" for minor in range(9, 21)]
"""Versions that are looked for: interpreters of functions run under 3.9 or newer."""
_PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_FROM_PIP = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}


@dataclass(frozen=True, slots=True)
class Uv:
    """The program uv. ``pythons``: programs by version; a version stands for itself where uv would fetch it."""

    program: str
    pythons: dict[str, str] = field(default_factory=dict)
    fetches: bool = False

    def steps(self, recipe: Recipe, folder: Path) -> list[list[str]]:
        """Return the commands that make an environment in the folder, which has the list of packages."""
        venv = [self.program, "venv", "--no-progress", "--python", recipe.python, str(folder / "venv")]
        if not recipe.packages:
            return [venv]
        install = [self.program, "pip", "install", "--no-progress", "--python", str(python_in(folder))]
        install += [*([] if recipe.builds else ["--no-build"]), "--requirements", str(folder / "requirements.txt")]
        return [venv, install]

    def variables(self, folder: Path) -> dict[str, str]:
        """Return the environment variables of those commands: the operator's settings of indexes and proxies."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("UV_") or name in _PASSED}
        kept |= {name: value for name, value in os.environ.items() if name.lower() in _PROXIES}
        for ours, theirs in _FROM_PIP.items():
            if ours in kept:
                kept.setdefault(theirs, kept.pop(ours))
        kept.setdefault("UV_SYSTEM_CERTS", "1")
        downloads = "automatic" if self.fetches else "never"
        return {
            **kept,
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder / ".tmp"),
            "TMPDIR": str(folder / ".tmp"),
            "UV_NO_CACHE": "1",
            "UV_PYTHON_DOWNLOADS": downloads,
            "UV_PYTHON_INSTALL_DIR": str(folder / "python"),
        }


def python_in(folder: Path) -> Path:
    """Return the Python program of the environment in a folder."""
    return folder / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def find(fetches: bool) -> Uv | None:
    """Return uv with the Pythons that are on this computer; None where uv is not installed.

    ``fetches``: uv may also download Pythons that are not there.
    """
    program = _program()
    if program is None:
        return None
    return Uv(program, {**(_fetched(program) if fetches else {}), **_installed()}, fetches)


def _installed() -> dict[str, str]:
    """Return Pythons on PATH, and Pythons that uv installed for this user.

    A script of such a name, as pyenv has, may stand for a Python that is not there.
    """
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or platformdirs.user_data_path("uv") / "python")
    folders = [str(path) for path in sorted(managed.glob("cpython-*/bin"), reverse=True)]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])
    names = {version: shutil.which(f"python{version}", path=path) for version in _VERSIONS}
    return {version: program for version, program in names.items() if program and not _is_script(program)}


def _is_script(program: str) -> bool:
    try:
        with Path(program).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def _program() -> str | None:
    beside = Path(sys.prefix, "Scripts" if sys.platform == "win32" else "bin", "uv")
    return shutil.which(str(beside)) or shutil.which("uv")


def _fetched(program: str) -> dict[str, str]:
    """Return the versions that uv can download, each as itself."""
    command = [program, "python", "list", "--output-format", "json", "--only-downloads"]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_WITHIN_S, check=True, cwd="/")
        listed = [entry for entry in json.loads(asked.stdout) if entry["implementation"] == "cpython"]
        parts = [entry["version_parts"] for entry in listed]
        return {version: version for version in (f"{one['major']}.{one['minor']}" for one in parts)}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return {}
