"""Energy counters of processor packages (RAPL; Linux's powercap), which root alone may read.

Tasks never see them: a counter that is read often enough reveals what other programs compute (CVE-2020-8694). A
service whose tasks have users of their own reads them for the agent, once in five seconds at most.
"""

from __future__ import annotations

import os
from contextlib import suppress

from loopline_worker.supervisor.users import credentials

FOLDER = "/sys/class/powercap"
_PREFIX, _PACKAGE = "intel-rapl:", "package-"


def read(folder: str = FOLDER) -> str:
    """Return a line for each package: its name, its count and the range of the counter, in microjoules.

    Parts of a package, such as its memory, are left out, and so is the whole platform, which contains packages.
    Raises OSError if a counter cannot be read.
    """
    lines = []
    for zone in sorted(os.listdir(folder)):  # noqa: PTH208 - pathlib is not light
        if zone.startswith(_PREFIX):
            name = _word(f"{folder}/{zone}/name")
            if name.startswith(_PACKAGE):
                counts = (_word(f"{folder}/{zone}/{file}") for file in ("energy_uj", "max_energy_range_uj"))
                lines.append(" ".join((name, *counts)))
    return "\n".join(lines)


def start_reading(answer: int) -> int:
    """Start to write the counters, if there are any, to an open file. Return the process id, or 0."""
    with suppress(OSError):
        child = os.fork()
        if child:
            return child
        try:
            credentials.become_root_without_powers()
            os.write(answer, read(FOLDER).encode())
        finally:
            os._exit(0)
    return 0


def _word(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib is not light
        return file.read().strip()
