"""The real worker, on a computer whose GPUs are those of the tree of files named by GPU_TREE."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    tree = Path(os.environ["GPU_TREE"])
    parts = importlib.import_module("loopline_worker.parts")
    parts.ready_gpus = partial(parts.ready_gpus, tree)
    parts.GpuLocks = partial(parts.GpuLocks, tree)
    return int(importlib.import_module("loopline_worker.__main__").main(arguments))
