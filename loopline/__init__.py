"""What a user imports: the client of a Loopline master. Names are loaded when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shared import __version__

if TYPE_CHECKING:
    from loopline.client import AsyncClient as AsyncClient

_HOMES = {"AsyncClient": "loopline.client"}

__all__ = ["AsyncClient", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
