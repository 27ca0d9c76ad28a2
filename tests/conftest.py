"""What holds for every test: chance in the measure that the run asks for, and tasks that write where they like."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from tests.campaign import PATIENT

settings.register_profile("loopline", PATIENT)
settings.load_profile("loopline")

os.environ.setdefault("LOOPLINE_SANDBOX", "off")
"""Most tests look at files that their tasks write beside their folders; those of the sandbox ask for one."""


signal.signal(signal.SIGINT, signal.default_int_handler)
"""Whatever a script runs in the background ignores Ctrl-C, and so would all that tests start."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the whole suite in a turned order, so that each process of a fresh clone compiles its share first.

    Collecting alone has one order, in which all processes would compile each file at the same moment. What cannot be
    imported is reported when it is collected.
    """
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    tests = Path(__file__).parent
    if not process or [Path(argument).resolve() for argument in session.config.args] != [tests]:
        return
    modules = sorted(file for file in tests.rglob("test_*.py") if file.parent.name not in {"compose", "snakemake"})
    turn = int(process.removeprefix("gw")) / int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    for file in turned(modules, turn):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(tests.parent).with_suffix("").parts))


def turned(modules: Sequence[Path], turn: float) -> list[Path]:
    """Return all of these, beginning after this part of them."""
    start = int(len(modules) * turn)
    return [*modules[start:], *modules[:start]]


def pytest_collection_finish() -> None:
    """Keep the collector from walking through all modules and tests again and again: they live as long as the run."""
    gc.collect()
    gc.freeze()
