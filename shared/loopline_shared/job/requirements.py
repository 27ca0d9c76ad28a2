"""Requirements of a job on the workers that run its tasks."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loopline_shared.model import Name, PythonVersion, SharedFolder, Units
from loopline_shared.protocol.gpus import ANY_GPU, COMPUTER, GPU, MAX_GPUS, WHOLE_GPU, Capability, GpuKind
from loopline_shared.protocol.software import Software
from loopline_shared.scalar import Spec, fresh


class Requirements(Spec):
    """Requirements on a worker that runs the job's tasks."""

    os: Literal["linux", "macos", "windows"] | None = None
    memory_bytes: Annotated[int, Field(ge=0, le=2**60, description="of one task, which may use no more")] = 0
    labels: Annotated[list[Name], Field(max_length=50)] = fresh(list)
    slots: Annotated[int, Field(ge=1, le=65536)] = 1
    network: bool = Field(default=False, description="tasks use the network; in a sandbox they have none otherwise")
    python: PythonVersion | None = Field(default=None, description="that functions run under there: 3.11")
    folder: SharedFolder = Field(default="", description="that workers share, and in which commands run there")
    software: Software | None = Field(default=None, description="packages or an image that tasks run with")
    needs: Annotated[
        dict[Name, Units],
        Field(max_length=10, description="units of limits (`loopline limit`) or of workers' resources that each task "
              "holds while it may be running"),
    ] = fresh(dict)  # fmt: skip
    exclusive: bool = Field(default=False, description="each task has a whole worker for itself, with all its slots")
    gpus: Annotated[
        Annotated[int, Field(ge=0, le=MAX_GPUS)] | Annotated[float, Field(ge=0.01, lt=1)],
        Field(description="GPUs that each task has for itself; 0.5: half of one, on workers that share their GPUs"),
    ] = 0
    gpu_memory_bytes: Annotated[int, Field(ge=0, le=2**60, description="of each of its GPUs, at least")] = 0
    gpu_model: Annotated[
        str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="words of the model's name: A4000")
    ] = ""
    gpu_capability: Annotated[Capability, Field(description="CUDA compute capability, at least: 8.0")] = ""

    @model_validator(mode="after")
    def _asks_for_units_by_their_fields(self) -> Self:
        if GPU in self.needs:
            raise ValueError(f"give gpus = {self.needs[GPU]} in place of needs.{GPU}")
        if not self.gpus and self.gpu_kind != ANY_GPU:
            raise ValueError("gpu_memory_bytes, gpu_model and gpu_capability say which GPUs: give gpus, too")
        if COMPUTER in self.needs:
            raise ValueError(f"give exclusive in place of needs.{COMPUTER}")
        if self.exclusive and self.slots > 1:
            raise ValueError("an exclusive task has all slots of its worker: leave out slots")
        return self

    @property
    def gpu_kind(self) -> GpuKind:
        """The GPUs that tasks accept."""
        part = round(self.gpus * WHOLE_GPU) if 0 < self.gpus < 1 else WHOLE_GPU
        return GpuKind(self.gpu_memory_bytes, self.gpu_model, self.gpu_capability, part)

    @property
    def gpu_count(self) -> int:
        """GPUs that a task has, or has a part of."""
        return ceil(self.gpus)

    @property
    def units(self) -> tuple[tuple[str, int], ...]:
        """Units that each attempt holds, GPUs and COMPUTER among them, in alphabetical order of their names."""
        if not (self.needs or self.gpus or self.exclusive):
            return ()
        special = {**({GPU: self.gpu_count} if self.gpus else {}), **({COMPUTER: 1} if self.exclusive else {})}
        return tuple(sorted({**self.needs, **special}.items()))
