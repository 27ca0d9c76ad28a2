"""The real worker, which waits for the master's word on the sources of a file however busy the computer is."""

from __future__ import annotations

import importlib
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    importlib.import_module("loopline_worker.peers.peering")._ANSWER_WITHIN_S = 60.0
    return int(importlib.import_module("loopline_worker.__main__").main(arguments))
