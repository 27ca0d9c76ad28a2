"""The real worker, on a computer whose GPUs are those of the tree of files named by GPU_TREE."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from loopline_worker.gpus.nvml_reader import NvmlReader


def main(arguments: Sequence[str]) -> int:
    tree = Path(os.environ["GPU_TREE"])
    parts = importlib.import_module("loopline_worker.parts")
    parts.ready_gpus = partial(parts.ready_gpus, tree)
    parts.GpuLocks = partial(parts.GpuLocks, tree)
    importlib.import_module("loopline_worker.gpus.gpu_watch").WATCH_EVERY_S = 0.5
    reader = NvmlReader(os.environ.get("GPU_LIBRARY", "no library"))
    parts.Gpus = partial(parts.Gpus, root=tree, reader=reader)
    return int(importlib.import_module("loopline_worker.__main__").main(arguments))
