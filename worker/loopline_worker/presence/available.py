"""The probes that this system may have. Loaded only where somebody asks who is at the desk."""

from __future__ import annotations

import sys

from loopline_worker.presence.idle_detector import Desk
from loopline_worker.presence.probe import Probe


def open_desk() -> Desk:
    return Desk(probes())


def probes() -> list[Probe]:
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
