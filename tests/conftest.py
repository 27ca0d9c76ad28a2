"""What holds for every test: chance in the measure that the run asks for, and tasks that write where they like."""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import settings

from tests.campaign import PATIENT

settings.register_profile("loopline", PATIENT)
settings.load_profile("loopline")

os.environ.setdefault("LOOPLINE_SANDBOX", "off")
"""Most tests look at files that their tasks write beside their folders; those of the sandbox ask for one."""


signal.signal(signal.SIGINT, signal.default_int_handler)
"""Whatever a script runs in the background ignores Ctrl-C, and so would all that tests start."""


def pytest_collection_finish() -> None:
    """Keep the collector from walking through all modules and tests again and again: they live as long as the run."""
    gc.collect()
    gc.freeze()
