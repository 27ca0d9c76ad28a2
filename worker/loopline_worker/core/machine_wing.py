"""The machine's door for optional features. Each is a wing: a class that overrides the hooks it needs.

The machine imports no wing. It is given its wings, and calls them in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from loopline_worker.core.events import WingEvent

if TYPE_CHECKING:
    from loopline_shared.model import Held, Load
    from loopline_shared.protocol.checkpoints import CheckpointReport
    from loopline_shared.protocol.gang_messages import Member
    from loopline_shared.protocol.power import GoodBye
    from loopline_shared.protocol.transfers import PeerReport
    from loopline_shared.protocol.worker_link import Assign
    from loopline_worker.core.attempts import Attempts
    from loopline_worker.core.instructions import Instructions

Handler = Callable[[Any, float, "Instructions"], None]


class MachineView(Protocol):
    """The machine, as its wings see it."""

    owes_report: bool
    """A Report is due soon."""
    must_review: bool
    """The owner rule is applied again at the end of this step."""
    wing_obstacle: str
    """The reason of a wing why no slots are offered and nothing starts; empty: there is none."""

    @property
    def attempts(self) -> Attempts:
        """All attempts of this worker."""


@dataclass(slots=True)
class DraftReport:
    """The next Report; each wing adds its part."""

    held: Sequence[Held]
    load: Load
    members: Sequence[Member] = ()
    peers: PeerReport | None = None
    checkpoints: CheckpointReport | None = None
    good_bye: GoodBye | None = None


class MachineWing:
    """Optional feature of the machine. Every hook does nothing by default."""

    starts: ClassVar[tuple[str, ...]] = ()
    """Fields of a Run: the wing starts attempts with one of them. Such an attempt is PREPARING once it has slots."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Fields of an Assign: ``assign`` is called if one of them is there."""

    def __init__(self, machine: MachineView) -> None:
        self.machine = machine

    def handlers(self) -> Mapping[type[WingEvent], Handler]:
        """Return the handlers of the wing's own events: ``(event, now, steps)``."""
        return {}

    def assign(self, assign: Assign, now: float, steps: Instructions) -> None:
        """Apply the wing's part of an Assign, after its cancels and runs. See ``reads``.

        Also called while any attempt of a wing has not begun, as are the hooks below.
        """

    def finish_step(self, allowed: int, pause_reason: str, now: float, steps: Instructions) -> None:
        """Finish a step. ``allowed``: slots that tasks may use. Also called while there is a ``wing_obstacle``.

        ``pause_reason``: why nothing may start; empty if attempts may.
        """

    def report(self, draft: DraftReport) -> None:
        """Add the wing's part to the next Report."""
