"""What holds for every test: chance in the measure that the run asks for."""

from __future__ import annotations

import gc

from hypothesis import settings

from tests.campaign import PATIENT

settings.register_profile("loopline", PATIENT)
settings.load_profile("loopline")


def pytest_collection_finish() -> None:
    """Keep the collector from walking through all modules and tests again and again: they live as long as the run."""
    gc.collect()
    gc.freeze()
