"""The agent's wing for gangs: a prepared member waits at a gate until the machine names its start.

A member of a gang has these variables beside those of ``preparation.TaskEnvironment``:

====================== ========================================================================
LOOPLINE_RANK          its rank, from 0
LOOPLINE_NODES         how many members there are
LOOPLINE_HOSTS         addresses of their computers by rank, separated by commas
LOOPLINE_RENDEZVOUS    host:port at the computer of rank 0, free as the gang was prepared
LOOPLINE_GANG_SECRET   known to the members of this launch alone
====================== ========================================================================
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart
from loopline_worker.core.gang_members import GangMembers, PreparedMember, StartMember

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId
    from loopline_shared.protocol.gang_messages import GangPlace
    from loopline_shared.protocol.worker_link import Run
    from loopline_worker.core.instructions import WingInstruction
    from loopline_worker.launch.interface import Job


class GangGates(AgentWing):
    """Keeps the gate of each member."""

    machine_wing = GangMembers
    concerns = ("gang",)

    def __init__(self) -> None:
        self._gates: dict[AttemptId, StartGate] = {}

    def prepare(self, run: Run, job: Job) -> StartGate:
        """Return the gate of a gang's member."""
        assert run.gang
        job.makes_folder = False
        job.hosts = run.gang.hosts
        job.environment.update(_variables(run.gang))

        def on_ready(port: int) -> None:
            self.agent.post(PreparedMember(run.attempt, port))

        gate = StartGate(job, on_ready, lambda: self._gates.pop(run.attempt, None))
        self._gates[run.attempt] = gate
        return gate

    def obey(self, instruction: WingInstruction) -> None:
        """Start a member."""
        if isinstance(instruction, StartMember):
            if gate := self._gates.get(instruction.run.attempt):
                gate.open(instruction.delay_s, instruction.rendezvous)
            self.agent.log_start(instruction.run)


class StartGate(AttemptPart):
    """Closed until it is opened. Until then it reserves a free port of this computer for its gang."""

    def __init__(self, job: Job, on_ready: Callable[[int], None], on_end: Callable[[], object]) -> None:
        """``on_ready`` is called with the port once the member waits here; 0 if none could be reserved."""
        self._job = job
        self._on_ready = on_ready
        self._on_end = on_end
        self._opened = asyncio.Event()
        self._reserved: socket.socket | None = None

    async def before_start(self) -> None:
        """Wait until the gate is opened."""
        self._on_ready(self._reserve_port())
        try:
            await self._opened.wait()
        finally:
            if self._reserved:
                self._reserved.close()

    def open(self, delay_s: float, rendezvous: str) -> None:
        """Open the gate after ``delay_s``. ``rendezvous``: where the members meet."""
        self._job.environment["LOOPLINE_RENDEZVOUS"] = rendezvous
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._opened.set)
        else:
            self._opened.set()

    def after_end(self) -> None:
        """Forget the gate."""
        self._on_end()

    def _reserve_port(self) -> int:
        with suppress(OSError):  # no descriptor left: a gang that does not meet needs none
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind(("", 0))
            return int(self._reserved.getsockname()[1])
        return 0


def _variables(place: GangPlace) -> dict[str, str]:
    return {
        "LOOPLINE_RANK": str(place.rank),
        "LOOPLINE_NODES": str(len(place.hosts)),
        "LOOPLINE_HOSTS": ",".join(place.hosts),
        "LOOPLINE_GANG_SECRET": place.secret,
    }
