"""GPUs: units of a resource that have names, and the GPUs that a job accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import Field

GPU = "gpu"
"""Name of the resource whose units are GPUs. No limit and no other resource may have it."""
COMPUTER = "computer"
"""Name of the unit that an exclusive task holds: its whole worker. No limit and no resource may have it."""
WHOLE_GPU, _ROUNDING = 1000, 10
"""A GPU in thousandths, and their tolerance: 0.33 is a third."""
MAX_GPUS = 64
"""Maximum number of GPUs of one worker."""

GpuId = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
"""NVIDIA's or AMD's UUID; for a GPU without one, its computer and PCI address."""
Capability = Annotated[str, Field(max_length=10, pattern=r"^(\d{1,3}\.\d{1,2})?$")]
"""CUDA compute capability such as 8.6; empty: unknown, or not CUDA."""
_Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of a worker."""

    id: GpuId
    model: _Text  # its name
    memory_bytes: Annotated[int, Field(ge=0, le=2**60)] = 0  # 0: unknown
    driver: _Text = ""  # its version
    capability: Capability = ""  # CUDA compute capability; empty: unknown, or not CUDA
    index: Annotated[int, Field(ge=0, le=10_000)] = 0  # in PCI order among the GPUs of its maker
    shares: Annotated[int, Field(ge=1, le=64)] = 1  # tasks that may have it at once

    @property
    def details(self) -> tuple[int, str, str, int]:
        """All that ``GpuKind`` asks of it."""
        return self.memory_bytes, self.model, self.capability, self.shares


class GpuKind(NamedTuple):
    """The GPUs that a job accepts."""

    memory_bytes: int = 0  # at least
    model: str = ""  # words that the model's name contains; empty: any
    capability: str = ""  # at least; empty: any
    part: int = WHOLE_GPU  # of one GPU, in thousandths

    def includes(self, gpu: Gpu) -> bool:
        """True if the job accepts this GPU. Unknown memory and capability do not count as enough."""
        return (
            gpu.memory_bytes >= self.memory_bytes
            and (not self.model or _words(self.model) <= _words(gpu.model))
            and (not self.capability or _version(gpu.capability) >= _version(self.capability))
            and (self.part == WHOLE_GPU or gpu.shares * (self.part + _ROUNDING) >= WHOLE_GPU)
        )


ANY_GPU = GpuKind()


def by_capability(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the GPUs, the least capable first: an attempt gets those, so that the others stay free."""
    return sorted(gpus, key=lambda gpu: (gpu.memory_bytes, _version(gpu.capability), gpu.index, gpu.id))


@lru_cache(1024)
def _words(model: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", model.lower()))


@lru_cache(256)
def _version(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split("."))) if capability else ()
