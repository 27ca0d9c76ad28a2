"""What holds for every test: chance in the measure that the run asks for, and tasks that write where they like."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.campaign import PATIENT
from tests.full import is_full
from tests.warm import python_as_this_process

settings.register_profile("loopline", PATIENT)
settings.load_profile("loopline")

os.environ.setdefault("LOOPLINE_SANDBOX", "off")
"""Most tests look at files that their tasks write beside their folders; those of the sandbox ask for one."""


os.umask(0o022)
"""Tests assert modes of files, so they need a fixed umask."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""Whatever a script runs in the background ignores Ctrl-C, and so would all that tests start."""


def pytest_configure(config: pytest.Config) -> None:
    """Have the processes of a whole run be forks of this one, which imports the suite for them all.

    It does so before anything of pytest's session is open. What cannot be imported is reported when it is collected.
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


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves to `make test-full`; a campaign's tests belong to neither."""
    for item in items:
        if is_full(item.nodeid) and item.get_closest_marker("campaign") is None:
            item.add_marker(pytest.mark.full)


def pytest_collection_finish() -> None:
    """Keep the collector from walking through all modules and tests again and again: they live as long as the run.
    What tests make is looked through as seldom as a command of ours has it, whichever of them are collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
