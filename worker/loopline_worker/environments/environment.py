"""An environment on this computer, and its changes to a task's launch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from loopline_worker.environments.uv import python_in
from loopline_worker.launch.interface import LIBRARIES, Job

RECORD = "environment.json"
"""The file in an environment's folder that marks it as complete and describes it; its time is the last use."""
_PATH_OF_IMAGE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Environment:
    """A complete environment. ``variables``: of an image, as its makers set them."""

    folder: Path
    size_bytes: int
    is_image: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.folder.name

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the environment in a folder; None if it is not complete."""
        try:
            record = json.loads((folder / RECORD).read_text("utf-8"))
            return cls(folder, int(record["size_bytes"]), bool(record["is_image"]), dict(record["variables"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self) -> None:
        """Write down that it is complete. Raises OSError."""
        record = {"size_bytes": self.size_bytes, "is_image": self.is_image, "variables": self.variables}
        (self.folder / RECORD).write_text(json.dumps(record), "utf-8")

    def apply(self, job: Job) -> None:
        """Have a job run in it."""
        job.software = self.key
        if self.is_image:
            job.root = str(self.folder / "root")
            job.shown = (job.root,)
            for name, value in {"PATH": _PATH_OF_IMAGE, **self.variables}.items():
                if name == "PATH" or name not in job.environment:
                    job.environment[name] = value
            if job.libraries:
                own = job.environment.get("LD_LIBRARY_PATH")
                job.environment["LD_LIBRARY_PATH"] = f"{own}:{LIBRARIES}" if own else LIBRARIES
            return
        venv, python = self.folder / "venv", python_in(self.folder)
        job.shown = (str(self.folder), *homes_of(self.folder))
        job.python = str(python)
        job.environment["VIRTUAL_ENV"] = str(venv)
        path = job.environment.get("PATH", os.defpath)
        job.environment["PATH"] = f"{python.parent}{os.pathsep}{path}"


def homes_of(folder: Path) -> Sequence[str]:
    """Return the installation of the Python that an environment of packages was made with, if it is outside /usr."""
    try:
        lines = (folder / "venv" / "pyvenv.cfg").read_text("utf-8").splitlines()
    except OSError:
        return ()
    homes = [Path(line.partition("=")[2].strip()).parent for line in lines if line.startswith("home =")]
    return [str(home) for home in homes if not home.is_relative_to("/usr") or sys.platform == "win32"]
