"""The choice of the launcher for this system."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loopline_worker.launch.interface import Launcher

if TYPE_CHECKING:
    from loopline_worker.launch.sandbox import Sandbox


def make_launcher(yields: bool, sandbox: Sandbox | None = None) -> Launcher:
    """Return the launcher for this system. ``yields``: its tasks have the lowest priority."""
    if sys.platform == "win32":
        from loopline_worker.launch.windows_launcher import WindowsLauncher

        return WindowsLauncher(yields)
    from loopline_worker.launch.posix import PosixLauncher
    from loopline_worker.supervisor import requests

    return PosixLauncher(yields, sandbox, requests.inherited())
