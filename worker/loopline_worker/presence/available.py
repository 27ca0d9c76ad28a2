"""The probes that this system may have, imported only if the presence of the owner matters."""

from __future__ import annotations

import sys

from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.presence.probe import Probe


def open_idle_detector() -> IdleDetector:
    """Return the idle detector of this computer."""
    return IdleDetector(probes())


def probes() -> list[Probe]:
    """Return the probes for this system."""
    if sys.platform == "win32":
        from loopline_worker.presence.windows_input import Windows

        return [Windows()]
    from loopline_worker.presence.terminals import Terminals

    if sys.platform == "darwin":
        from loopline_worker.presence.macos import MacOS

        return [MacOS(), Terminals()]
    from loopline_worker.presence.logind import Logind
    from loopline_worker.presence.mutter import Mutter
    from loopline_worker.presence.x11 import X11

    return [Mutter(), X11(), Logind(), Terminals()]
