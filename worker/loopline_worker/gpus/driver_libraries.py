"""Libraries of NVIDIA's driver for tasks of container images, which have the libraries of no driver.

They must be those of this computer's driver. A list in CDI format names them: `nvidia-ctk cdi generate` writes one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopline_worker.gpus.local_gpus import ROOT

log = logging.getLogger(__name__)

_LISTS = ("etc/cdi", "var/run/cdi")
_KIND = "nvidia.com/gpu"
_MOST_BYTES, _MOST_FILES = 2**20, 256


def driver_libraries(root: Path = ROOT) -> dict[str, str]:
    """Return the libraries by name: the path of each. Their other names, which are links to them, are included."""
    found = dict[str, str]()
    for file in (file for folder in _LISTS for file in sorted((root / folder).glob("*"))):
        try:
            for path in _listed(file):
                found |= {name: str(path) for name in _names(path)}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("cannot read %s, a list of devices: %s", file, error)
        if len(found) > _MOST_FILES:
            log.warning("%s lists too many libraries: images get none of them", file)
            return {}
    return found


def _listed(file: Path) -> Iterator[Path]:
    """Return the libraries that a list names. Raises OSError, ValueError, TypeError or AttributeError."""
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
        if ".so" in path.name and path.is_absolute() and path.is_file():
            yield path


def _names(path: Path) -> Iterator[str]:
    """Return the names of a library in its folder, as its links have them."""
    yield path.name
    stem = path.name.partition(".so")[0]
    for link in path.parent.glob(f"{stem}.so*"):
        with suppress(OSError):
            if link.is_symlink() and link.samefile(path):
                yield link.name
