"""The checkpoints of a machine: taken and uploaded at once, then reported until the master has acknowledged them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from loopline_shared.model import AttemptId
from loopline_shared.protocol.checkpoints import CheckpointReport, TakenCheckpoint
from loopline_shared.protocol.worker_link import Run

_STEP_S = 20.0
"""CPU time of a step of a gang's member. Members reach a step at about the same time, and save it when they like."""


class MachineCheckpoints:
    """Keeps the newest checkpoint of each attempt that the master has not acknowledged."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._runs: dict[AttemptId, Run] = {}
        self._taken: dict[AttemptId, TakenCheckpoint] = {}
        self._sent: dict[AttemptId, int] = {}  # number of the Report
        self._count = 0

    def boot(self) -> None:
        """Forget what the master does not know."""
        self._runs.clear()
        self._taken.clear()
        self._sent.clear()

    def connect(self) -> None:
        """Begin a session: the numbers of Reports start again."""
        self._sent.clear()

    def begin(self, run: Run) -> None:
        """Note the start of an attempt."""
        if run.checkpoint:
            self._runs[run.attempt] = run

    def start_of(self, attempt: AttemptId) -> str:
        """Return the checkpoint that an attempt here continues from; empty: none."""
        run = self._runs.get(attempt)
        resume = run and run.checkpoint and run.checkpoint.resume
        return resume.manifest if resume else ""

    def takes_any(self, attempts: Iterable[AttemptId]) -> bool:
        """True if one of these attempts takes checkpoints."""
        return any(attempt in self._runs for attempt in attempts)

    def save(self, attempt: AttemptId, done_s: float) -> str:
        """Take a checkpoint of an attempt that has used this CPU time. Return its name; empty: its job takes none."""
        run = self._runs.get(attempt)
        if run is None or run.checkpoint is None:
            return ""
        resume, self._count = run.checkpoint.resume, self._count + 1
        cpu_s = done_s + (resume.cpu_s if resume else 0.0)
        line = dict.fromkeys((*(resume.line if resume else ()), self._machine))
        name = sha256(f"{self._machine} {attempt} {self._count}".encode()).hexdigest()
        self._taken[attempt] = TakenCheckpoint(
            attempt,
            name,
            size_bytes=1000,
            sent_bytes=1000,
            cpu_s=cpu_s,
            wall_s=cpu_s,
            line=tuple(line),
            times=resume.times if resume else 0,
            step=int(cpu_s / _STEP_S) if run.gang else None,
        )
        self._sent.pop(attempt, None)
        return name

    def report(self, number: int) -> CheckpointReport | None:
        """Return what the Report of this number brings."""
        self._sent |= {attempt: number for attempt in self._taken if attempt not in self._sent}
        return CheckpointReport(tuple(self._taken.values())) if self._taken else None

    def acknowledged(self, number: int) -> list[TakenCheckpoint]:
        """Forget what the Reports up to this number have brought, and return it."""
        sent = [attempt for attempt, first in self._sent.items() if first <= number]
        for attempt in sent:
            del self._sent[attempt]
        return [self._taken.pop(attempt) for attempt in sent]
