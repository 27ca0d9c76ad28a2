"""Checkpoints as a job asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from loopline_shared.model import Function
from loopline_shared.paths import CHECKPOINT
from loopline_shared.protocol.checkpoints import MAX_CHECKPOINT_BYTES
from loopline_shared.scalar import Spec


class CheckpointSpec(Spec):
    """A job's checkpoints: its tasks save their state in the folder that LOOPLINE_CHECKPOINT names."""

    every_s: Annotated[
        float | None,
        Field(ge=1, le=1e6, allow_inf_nan=False, description="between two checkpoints; null: as their cost suggests"),
    ] = None
    exit_code: Annotated[
        int | None,
        Field(ge=1, le=255, description="with which a task ends only to be continued from what it saved"),
    ] = None
    max_bytes: Annotated[
        int | None, Field(ge=1, le=MAX_CHECKPOINT_BYTES, description="of one checkpoint; null: 1 GB")
    ] = None
    portable: Annotated[
        bool, Field(description="a checkpoint may be used on another operating system or processor type")
    ] = False


def check_checkpoint(spec: CheckpointSpec, paths: Iterable[str], function: Function | None, nodes: int) -> None:
    """Raises ValueError if tasks with this function, and with files at these paths, cannot take checkpoints."""
    if nodes > 1 and spec.exit_code:
        raise ValueError("a task on several nodes cannot end to be continued: leave out checkpoint.exit_code")
    if function and function.chunk:
        raise ValueError("a checkpoint is of one call: leave out chunk")
    if function and spec.exit_code:
        raise ValueError("a function cannot end to be continued: leave out checkpoint.exit_code")
    for path in paths:
        if path.partition("/")[0] == CHECKPOINT:
            raise ValueError(f"{path!r}: {CHECKPOINT} is the folder that checkpoints are taken of")
