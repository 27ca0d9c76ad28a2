"""Settings of all tests: the amount of randomness that the run requests, and tasks without a sandbox."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.campaign import PATIENT
from tests.full import is_full, spread
from tests.warm import python_as_this_process

settings.register_profile("loopline", PATIENT)
settings.load_profile("loopline")

os.environ.setdefault("LOOPLINE_SANDBOX", "off")
"""Most tests read files that tasks write outside their folders; tests of the sandbox request one."""

_OF_TERMINALS = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")
_OF_RUNS = ("CAMPAIGNS", "RANDOM_EXAMPLES", "REQUIRE_BROWSER", "BASE_IMAGE", "TEST_SNAKEMAKE", "SANDBOX")
for _name in tuple(os.environ):
    if _name in _OF_TERMINALS or (_name.startswith("LOOPLINE_") and _name.removeprefix("LOOPLINE_") not in _OF_RUNS):
        del os.environ[_name]
"""Variables of a developer or a CI change output in pipes, or are settings of a grid in use."""

os.umask(0o022)
"""Tests assert modes of files, so they need a fixed umask."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""Background processes of a script ignore Ctrl-C, and the processes that tests start would inherit that."""


def pytest_configure(config: pytest.Config) -> None:
    """Fork the processes of a whole run from this one, which imports the suite once for all.

    The imports happen before pytest's session opens files. Import errors are reported at collection.
    """
    tests, specs = Path(__file__).parent, getattr(config.option, "tx", None)
    if sys.platform != "linux" or not specs or [Path(argument).resolve() for argument in config.args] != [tests]:
        return
    for file in sorted(tests.rglob("test_*.py")):
        if file.parent.name not in {"compose", "snakemake"}:
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(tests.parent).with_suffix("").parts))
    python = shlex.join(python_as_this_process())
    config.option.tx = [f"{spec}//python={python}" for spec in specs]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what `make test` leaves to `make test-full`; a campaign's tests belong to neither.

    Spread the long tests over the others, since each process of a run gets neighbours.
    """
    for item in items:
        if is_full(item.nodeid) and item.get_closest_marker("campaign") is None:
            item.add_marker(pytest.mark.full)
    yield  # pytest selects by marks
    items[:] = [items[number] for number in spread([item.nodeid for item in items])]


def pytest_collection_finish() -> None:
    """Exclude modules and tests, which live as long as the run, from garbage collection. Objects that tests make are
    collected as rarely as in our commands, regardless of the tests collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
