"""What holds for every test: chance in the measure that the run asks for."""

from __future__ import annotations

from hypothesis import settings

from tests.campaign import PATIENT

settings.register_profile("loopline", PATIENT)
settings.load_profile("loopline")
