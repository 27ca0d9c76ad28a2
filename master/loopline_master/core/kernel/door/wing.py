"""Wing: a mechanism with access to the scheduler's state."""

from __future__ import annotations

from loopline_master.core.kernel.door.mechanism import Mechanism
from loopline_master.core.kernel.state import State


class Wing(Mechanism):
    """Base of the wings. Rows of a wing's own entities come with ``restore``."""

    def __init__(self, state: State) -> None:
        self.state = state
