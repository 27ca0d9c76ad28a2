"""The real worker, which waits for the master's answer about the sources of a file however busy the computer is."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from loopline_worker.peers import peering


def main(arguments: Sequence[str]) -> int:
    peering._ANSWER_WITHIN_S = 60.0
    return int(importlib.import_module("loopline_worker.__main__").main(arguments))
