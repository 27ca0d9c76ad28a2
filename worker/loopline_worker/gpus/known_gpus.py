"""A file with memory and compute capability of GPUs: NVML may be asked for them only while a GPU is in use."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from loopline_worker.gpus.local_gpus import LocalGpu

log = logging.getLogger(__name__)


class KnownGpus:
    """The file, with memory and compute capability of GPUs by id."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def complete(self, found: Iterable[LocalGpu]) -> list[LocalGpu]:
        """Return the GPUs with the details in the file."""
        try:
            known = json.loads(self._file.read_text("utf-8"))
            return [with_details(each, *known.get(each.gpu.id, (0, ""))) for each in found]
        except (OSError, ValueError, TypeError, AttributeError):
            return [*found]

    def keep(self, gpus: Iterable[LocalGpu]) -> None:
        """Write the details of these GPUs."""
        known = {each.gpu.id: (each.gpu.memory_bytes, each.gpu.capability) for each in gpus}
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_text(json.dumps(known), "utf-8")
            unfinished.replace(self._file)
        except OSError as error:
            log.warning("cannot keep the memory of GPUs: %s", error)


def with_details(found: LocalGpu, memory_bytes: int, capability: str) -> LocalGpu:
    """Return the GPU with these details, where they are known."""
    gpu = found.gpu
    known = replace(gpu, memory_bytes=memory_bytes or gpu.memory_bytes, capability=capability or gpu.capability)
    return found if known == gpu else replace(found, gpu=known)
