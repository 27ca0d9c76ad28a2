"""The probes that this system may have. Loaded only where somebody asks who is at the desk."""

from __future__ import annotations

import sys

from worker.presence.desk import Desk
from worker.presence.probe import Probe


def open_desk() -> Desk:
    return Desk(probes())


def probes() -> list[Probe]:
    if sys.platform == "win32":
        from worker.presence.windows import Windows

        return [Windows()]
    from worker.presence.terminals import Terminals

    if sys.platform == "darwin":
        from worker.presence.macos import MacOS

        return [MacOS(), Terminals()]
    from worker.presence.logind import Logind
    from worker.presence.mutter import Mutter
    from worker.presence.x11 import X11

    return [Mutter(), X11(), Logind(), Terminals()]
