"""The duties of an engine: start the command of a worker somewhere, say how it is, and end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loopline.elastic.plan import Allocation, Stage


@dataclass(frozen=True, slots=True)
class Wish:
    """The engine's parameters of an allocation."""

    slots: int
    time_limit_s: float
    gpus: int = 0
    resources: dict[str, int] = field(default_factory=dict)  # others than GPUs
    memory_bytes: int | None = None
    queue: str = ""
    account: str = ""
    options: dict[str, str] = field(default_factory=dict)  # more, as the engine itself calls them


class Engine(Protocol):
    """An engine. Each method blocks, and raises LooplineError with the engine's message."""

    def submit(self, name: str, command: Sequence[str], wish: Wish) -> str:
        """Have the command run, and return the engine's id of that."""

    def stage(self, allocation: Allocation) -> Stage:
        """Return how it is with an allocation that has an id."""

    def find(self, name: str) -> str | None:
        """Return the id of this name's submission: empty if it was never made, None if that is unknown."""

    def cancel(self, allocation: Allocation) -> None:
        """End an allocation that has an id."""
