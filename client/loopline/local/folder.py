"""The folder of a grid on this computer, which clients search for its token."""

from __future__ import annotations

from pathlib import Path

from loopline_shared.configuration.user_folders import user_folder


def local_folder(port: int) -> Path:
    """Return the folder of a grid of ``loopline local`` whose master serves at this port."""
    return user_folder("data") / "local" / str(port)
