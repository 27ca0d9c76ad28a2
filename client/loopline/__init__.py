"""The client of a Loopline master, as users import it. Names are loaded when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from loopline_shared import __version__

if TYPE_CHECKING:
    from loopline import checkpoint as checkpoint
    from loopline import joblib as joblib
    from loopline.client import AsyncClient as AsyncClient
    from loopline.executor import Executor as Executor
    from loopline.functions.calls import CallError as CallError
    from loopline.job import AsyncJob as AsyncJob
    from loopline.sync import Client as Client
    from loopline.sync import Job as Job
    from loopline.transfer import files as files
    from loopline_shared.errors import LooplineError as LooplineError
    from loopline_shared.spec import JobSpec as JobSpec

_HOMES = {
    "AsyncClient": "loopline.client",
    "AsyncJob": "loopline.job",
    "CallError": "loopline.functions.calls",
    "Client": "loopline.sync",
    "Executor": "loopline.executor",
    "Job": "loopline.sync",
    "JobSpec": "loopline_shared.spec",
    "LooplineError": "loopline_shared.errors",
}
_MODULES = {"checkpoint": "loopline.checkpoint", "joblib": "loopline.joblib", "files": "loopline.transfer.files"}

__all__ = [
    "AsyncClient", "AsyncJob", "CallError", "Client", "Executor", "Job", "JobSpec", "LooplineError", "__version__"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
