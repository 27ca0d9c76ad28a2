"""The Python that functions run under: the agent's own, or the one in the worker's setting ``python``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from loopline_shared.errors import LooplineError

_WITHIN_S = 20.0
_QUESTION = """
import json, os, sys
try:
    import cloudpickle
    missing = ""
except ImportError as error:
    missing = str(error)
folders = [sys.prefix, sys.base_prefix, *filter(os.path.isdir, sys.path[1:])]
print(json.dumps(["%d.%d" % sys.version_info[:2], missing, folders]))
"""


@dataclass(frozen=True, slots=True)
class Python:
    """A Python program. ``obstacle``: the reason why it can run no functions."""

    program: str
    version: str = ""
    obstacle: str = ""
    folders: tuple[Path, ...] = ()  # of its installation, which a sandbox has to show

    @property
    def functions(self) -> str | None:
        """Version (major and minor) that must have pickled its functions; None with an obstacle."""
        return None if self.obstacle else self.version


def find(setting: str | None) -> Python:
    """Return the Python of a program's name or path, or the agent's own. Raises LooplineError if it is missing."""
    if setting is None:
        return _own()
    program = shutil.which(setting)
    if program is None:
        hint = "give the path of a python3 in the worker's setting `python`, or leave it out"
        raise LooplineError("python", f"there is no program {setting}", hint)
    return _ask(str(Path(program).absolute()))


def _own() -> Python:
    from importlib.util import find_spec

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Python(sys.executable, version, "" if find_spec("cloudpickle") else "cloudpickle is not installed")


def _ask(program: str) -> Python:
    command = [program, "-c", _QUESTION]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_WITHIN_S, check=True, cwd="/")
        version, missing, folders = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Python(program, obstacle=f"it does not run: {error}")
    return Python(program, version, missing and f"cloudpickle is not installed: {missing}", tuple(map(Path, folders)))
