"""The agent's door for optional features. Each is a wing: a class that overrides the hooks it needs.

The agent, its runner and its attempts import no wing. The tuple in parts.py has all of them, in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from loopline_worker.core.machine_wing import DraftReport, MachineWing

if TYPE_CHECKING:
    from loopline_shared.model import Result
    from loopline_shared.protocol.worker_link import Assign, Run
    from loopline_worker.core.events import Event
    from loopline_worker.core.instructions import WingInstruction
    from loopline_worker.launch.interface import Job


class AgentView(Protocol):
    """The agent, as its wings see it."""

    @property
    def is_wanted(self) -> bool:
        """True while tasks or the owner want this computer."""

    def post(self, event: Event) -> None:
        """Have the machine take in an event."""

    def speak(self) -> None:
        """Send a Report soon."""

    def log_start(self, run: Run) -> None:
        """Note that an attempt has started that a wing starts."""


class AttemptPart:
    """A wing's part in one attempt. Every hook does nothing by default."""

    prepares = False
    """True if ``prepare`` may take a while, which counts as preparation in the attempt's phases."""

    async def prepare(self, job: Job) -> None:
        """Get what the task needs, before its inputs are staged. Raises StagingError or OSError."""

    async def before_start(self) -> None:
        """Wait until the task may start: it is ready. Cancelled if the attempt ends."""

    def on_frozen(self, is_frozen: bool) -> None:
        """Freeze or thaw what runs for the attempt before its task does."""

    def after_end(self) -> None:
        """Release what the attempt used: its result was posted, and its folder is removed."""


class AgentWing:
    """Optional feature of the agent. Every hook does nothing by default."""

    machine_wing: type[MachineWing] | None = None
    """The feature's part in the machine."""
    agent: AgentView

    def attach(self, agent: AgentView) -> None:
        """Note the agent, before any other hook is called."""
        self.agent = agent

    def prepare(self, run: Run, job: Job) -> AttemptPart | None:
        """Alter the job of a new attempt, and return the wing's part in it; None: it has none.

        A part whose ``prepare`` or ``before_start`` is to be awaited sets ``job.makes_folder`` to False.
        """

    def obey(self, instruction: WingInstruction) -> None:
        """Carry out an instruction of ``machine_wing``; others are for other wings."""

    def assign(self, assign: Assign) -> None:
        """Take in the wing's part of an Assign."""

    def report(self, draft: DraftReport) -> None:
        """Add the wing's part to the next Report."""

    def reported(self, seq: int) -> None:
        """Note that the Report with the last ``report`` was sent under this number."""

    def after_delivery(self, result: Result, folder: Path) -> None:
        """Note that the master has the files of a result, which ``folder`` still has."""

    def make_room(self, wanted_bytes: int) -> None:
        """Free ``wanted_bytes`` of the disk, if that is above zero and the wing can."""

    def cpu_s(self) -> float:
        """Return the CPU time of the wing's own processes since the agent started."""
        return 0.0

    def notice(self) -> str:
        """Return a sentence for the owner's page; empty: there is nothing to say."""
        return ""

    def close(self) -> None:
        """Close connections and files: the agent ends."""
