"""Trust in files that a process with the power of others' users runs: root alone may change them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from loopline_shared.errors import LooplineError

_HINT = (
    "install it where only root may write: sudo python3 -m venv /opt/loopline, then"
    " sudo /opt/loopline/bin/pip install 'loopline[worker]', and run this from there;"
    " or name the one user who runs all with --user"
)


def check(*files: Path) -> None:
    """Raise LooplineError unless root alone may change these files, and the users of tasks may read them."""
    for file in files:
        for place in _on_the_way(file):
            status = place.stat()
            if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                message = f"others than root may change {place}, which the service would trust"
                raise LooplineError("service", message, _HINT)
            if not status.st_mode & stat.S_IXOTH and place.is_dir():
                raise LooplineError("service", f"the users of tasks may not enter {place}, where Loopline is", _HINT)


def _on_the_way(file: Path) -> Iterator[Path]:
    """Yield the file and all folders above it, as it is named and where its links lead."""
    for path in (file.absolute(), file.resolve()):
        yield path
        yield from path.parents
