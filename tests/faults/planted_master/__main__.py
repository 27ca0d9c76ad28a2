"""The real master with the bug that PLANTED_BUG names."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from tests.faults.bugs import plant_as_told


def main(arguments: Sequence[str]) -> int:
    plant_as_told()
    return int(importlib.import_module("loopline_master.__main__").main(arguments))
