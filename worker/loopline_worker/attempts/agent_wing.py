"""The agent's door for optional features. Each is a wing: a class that overrides the hooks it needs.

The agent, its runner and its attempts import no wing. The tuple in parts.py has all of them, in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from loopline_worker.core.machine_wing import DraftReport, MachineWing

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId, Held, Resource, Result
    from loopline_shared.protocol.worker_link import Assign, Run, Welcome
    from loopline_worker.attempts.capture import Capture
    from loopline_worker.attempts.judge import Verdict
    from loopline_worker.core.events import Event
    from loopline_worker.core.instructions import WingInstruction
    from loopline_worker.launch.interface import Ended, Job, Tree


class AgentView(Protocol):
    """The agent, as its wings see it."""

    @property
    def is_wanted(self) -> bool:
        """True while tasks or the owner want this computer."""

    @property
    def is_in_use(self) -> bool:
        """True if the owner uses the computer or presence is unknown."""

    @property
    def idle_s(self) -> float | None:
        """Seconds since the last input; None: unknown."""

    @property
    def sleep_locks(self) -> tuple[str, ...]:
        """Locks of logind that are needed so that tasks continue."""

    @property
    def is_linked(self) -> bool:
        """True while the link to the master is open."""

    @property
    def own_address(self) -> str:
        """Local address of the open link; empty if it is closed."""

    @property
    def is_ending(self) -> bool:
        """True while processes of ended attempts are left, or their results are not in the journal."""

    @property
    def is_stopping(self) -> bool:
        """True once the agent ends or its computer is about to sleep: files can still be written, but not sent."""

    @property
    def life(self) -> str:
        """The life of the master's database that all attempts come from; empty: not known."""

    def post(self, event: Event) -> None:
        """Post an event to the machine."""

    def speak(self) -> None:
        """Send a Report soon."""

    def pause_link(self) -> None:
        """Do not connect again before ``resume_link``. An open link stays open until the master closes it."""

    def resume_link(self) -> None:
        """Connect again at once."""

    def log_start(self, run: Run) -> None:
        """Log that an attempt of a wing has started."""

    def offer(self, resource: Resource) -> None:
        """Report another state of a resource, in a new session with the master."""


class OngoingAttempt(Protocol):
    """An attempt, as its parts see it."""

    id: AttemptId
    is_frozen: bool

    @property
    def folder(self) -> Path:
        """The scratch folder."""

    @property
    def is_unwanted(self) -> bool:
        """True if it was asked to end."""

    @property
    def held(self) -> Held:
        """Run time and CPU time until now, or until the end."""

    @property
    def streams(self) -> tuple[Capture, Capture]:
        """The captures of stdout and stderr."""

    def measure(self) -> None:
        """Bring the CPU time in ``held`` up to date."""


class AttemptPart:
    """A wing's part in one attempt. Every hook does nothing by default."""

    prepares = False
    """True if ``prepare`` may take a while, which counts as preparation in the attempt's phases."""
    earlier_s = 0.0
    """Run time of earlier attempts that this one continues: it counts against the task's time limit."""

    def attach(self, attempt: OngoingAttempt) -> None:
        """Set the attempt. Called before any other hook."""

    async def prepare(self, job: Job) -> None:
        """Get what the task needs, before its inputs are staged. Raises StagingError or OSError."""

    async def before_start(self) -> None:
        """Wait until the task may start: it is ready. Cancelled if the attempt ends."""

    def started(self, tree: Tree) -> None:
        """Take the attempt's process tree: a supervisor has it, and starts it now or later."""

    def on_frozen(self, is_frozen: bool) -> None:
        """Freeze or thaw the wing's own processes for the attempt. Once it has a tree, that is frozen already."""

    async def on_end(self, ended: Ended, verdict: Verdict) -> Verdict:
        """Return the verdict on the attempt, mostly the given one. Called once none of its processes is left.

        Its output is complete, its folder is still there, and no output has been collected. Raises OSError.
        """
        return verdict

    def complete(self, result: Result) -> Result:
        """Return the attempt's result with the wing's figures, mostly the given one."""
        return result

    def after_end(self) -> None:
        """Release the attempt's resources: its result was posted, and its folder is removed."""


class AgentWing:
    """Optional feature of the agent. Every hook does nothing by default.

    A wing is asleep until its first use. Then only ``attach``, ``connected``, ``prepare``, ``obey``, ``on_sample``,
    ``make_room``, ``notice`` and ``close`` are called, so that an ordinary task enters none of its files.
    """

    machine_wing: type[MachineWing] | None = None
    """The feature's part in the machine."""
    concerns: ClassVar[tuple[str, ...]] = ()
    """Fields of a Run: ``prepare`` is called for attempts with one of them."""
    is_awake = False
    """Set by the wing."""
    agent: AgentView

    def attach(self, agent: AgentView) -> None:
        """Set the agent. Called before any other hook."""
        self.agent = agent

    def connected(self, welcome: Welcome) -> None:
        """Begin another session with the master: numbers of Reports start at 1 again."""

    def prepare(self, run: Run, job: Job) -> AttemptPart | None:
        """Alter the job of a new attempt, and return the wing's part in it; None: it has none.

        To have the part's ``prepare`` or ``before_start`` awaited, set ``job.makes_folder`` to False.
        """

    def obey(self, instruction: WingInstruction) -> None:
        """Carry out an instruction of ``machine_wing``; others are for other wings."""

    def on_sample(self) -> None:
        """Called every few seconds and when tasks were frozen for the owner, also while the wing is asleep."""

    def assign(self, assign: Assign) -> None:
        """Apply the wing's part of an Assign."""

    def report(self, draft: DraftReport) -> None:
        """Add the wing's part to the next Report."""

    def reported(self, seq: int) -> None:
        """Note that the latest Report was sent with this number."""

    def after_delivery(self, result: Result, folder: Path) -> None:
        """Note that the master has the files of a result, while they are still in ``folder``."""

    def make_room(self, wanted_bytes: int) -> None:
        """Free up to ``wanted_bytes`` of disk space; zero or less: nothing to do."""

    def cpu_s(self) -> float:
        """Return the CPU time of the wing's own processes since the agent started."""
        return 0.0

    def notice(self) -> str:
        """Return a sentence for the owner's page; empty: there is nothing to say."""
        return ""

    def close(self) -> None:
        """Close connections and files, because the agent ends."""
