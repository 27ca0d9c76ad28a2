"""Which Python functions run under here: the agent's own, or the one that the worker is set to."""

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
import json, sys
try:
    import cloudpickle
    missing = ""
except ImportError as error:
    missing = str(error)
print(json.dumps(["%d.%d" % sys.version_info[:2], missing, [sys.prefix, sys.base_prefix]]))
"""


@dataclass(frozen=True, slots=True)
class Python:
    """``obstacle``: why it can run no functions."""

    program: str
    version: str = ""
    obstacle: str = ""
    folders: tuple[Path, ...] = ()  # that a sandbox has to show

    @property
    def functions(self) -> str | None:
        """What its functions must have been pickled by: major and minor version."""
        return None if self.obstacle else self.version


def find(setting: str | None) -> Python:
    """``setting``: a program's name or path. LooplineError where it is none."""
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
    return Python(sys.executable, version, "" if find_spec("cloudpickle") else "it has no cloudpickle")


def _ask(program: str) -> Python:
    command = [program, "-c", _QUESTION]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_WITHIN_S, check=True, cwd="/")
        version, missing, folders = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Python(program, obstacle=f"it does not run: {error}")
    return Python(program, version, missing and f"it has no cloudpickle: {missing}", tuple(map(Path, folders)))
