"""Libraries of NVIDIA's driver for tasks of container images, which have the libraries of no driver.

They must be those of this computer's driver. A list in CDI format names them: `nvidia-ctk cdi generate` writes one.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopline_worker.gpus.local_gpus import ROOT

log = logging.getLogger(__name__)

_LISTS = ("etc/cdi", "var/run/cdi")
_KIND = "nvidia.com/gpu"
_MOST_BYTES, _MOST_FILES = 2**20, 256
_LIBRARY = re.compile(r".+\.so(\.\d+)*")
_OTHER_WIDTH = b"\x7fELF\1" if struct.calcsize("P") == 8 else b"\x7fELF\2"
"""First bytes of a 32-bit library on a 64-bit computer, or the reverse."""


def driver_libraries(root: Path = ROOT) -> dict[str, str]:
    """Return the path of each library by name, including the names of links to it. The first of a name counts."""
    found = dict[str, str]()
    for file in (file for folder in _LISTS for file in sorted((root / folder).glob("*"))):
        try:
            for path in _listed(file):
                found = {name: str(path) for name in _names(path)} | found
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            log.warning("cannot read %s, a list of devices: %s", file, error)
        if len(found) > _MOST_FILES:
            log.warning("%s lists too many libraries: images get none of them", file)
            return {}
    return found


def _listed(file: Path) -> Iterator[Path]:
    """Return the libraries that a list names, without 32-bit libraries on a 64-bit computer.

    Raises OSError, ValueError, TypeError, AttributeError, or RecursionError if the list is nested too deeply.
    """
    if file.suffix not in (".json", ".yaml", ".yml") or file.stat().st_size > _MOST_BYTES:
        return
    from ruamel.yaml import YAML  # only where there is a list
    from ruamel.yaml.error import YAMLError

    try:
        said: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text("utf-8"))  # JSON is YAML, too
    except YAMLError as error:
        raise ValueError(error) from None
    if said.get("kind") != _KIND:
        return
    for mount in said.get("containerEdits", {}).get("mounts") or ():
        path = Path(mount.get("hostPath", ""))
        if _LIBRARY.fullmatch(path.name) and path.is_absolute() and path.is_file() and _fits_computer(path):
            yield path


def _fits_computer(path: Path) -> bool:
    """False for a 32-bit library on a 64-bit computer, and for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_OTHER_WIDTH)) != _OTHER_WIDTH
    except OSError:
        return False


def _names(path: Path) -> Iterator[str]:
    """Return the names of a library in its folder, as its links have them."""
    yield path.name
    stem = path.name.partition(".so")[0]
    for link in path.parent.glob(f"{stem}.so*"):
        with suppress(OSError):
            if link.is_symlink() and link.samefile(path):
                yield link.name
