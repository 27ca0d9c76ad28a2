"""The frames that a step leaves behind: at most one Assign for each worker concerned."""

from __future__ import annotations

from dataclasses import dataclass, field

from master.scheduling.model import Attempt, Worker
from master.scheduling.state import State
from shared.model import AttemptId, AttemptState, Probation
from shared.protocol.messages import MAX_LONG_RUNS_PER_ASSIGN, MAX_RUNS_PER_ASSIGN, Assign, Run
from shared.spec import MAX_RUN_CHARACTERS

_INPUT_CHARACTERS = 150
"""Of an input of a task's own, beside its path."""


_DISPATCHED, _CANCELLING = AttemptState.DISPATCHED, AttemptState.CANCELLING


@dataclass(slots=True)
class _Frame:
    """What one worker is to be told."""

    runs: list[Run] = field(default_factory=list)
    cancels: list[AttemptId] = field(default_factory=list)
    length: int = 0  # characters of so many ...
    counted: int = 0  # ... runs


class Outbox:
    """Gathers, during one step, who must be written to; commands are read off the changed attempts."""

    def __init__(self) -> None:
        self._frames: dict[str, _Frame] = {}

    def frame(self, worker: str) -> _Frame:
        """There will be one to this worker, if it listens: each Report is answered."""
        found = self._frames.get(worker)
        if found is None:
            found = self._frames[worker] = _Frame()
        return found

    def cancel_stranger(self, worker: str, attempt: AttemptId) -> None:
        """It holds an attempt that is over, or that was never ours."""
        self.frame(worker).cancels.append(attempt)

    def seal(self, state: State) -> dict[str, Assign]:
        """Number the frames, and note on each attempt which frame carries its command.

        What does not fit into a frame is sent when the worker's next Report shows that it does not hold it.
        """
        workers = state.workers
        for attempt in state.effects.attempts.values():
            if attempt.sent == 0 and attempt.ended_at is None and _is_listening(workers[attempt.worker]):
                self._command(state, attempt, workers[attempt.worker])
        listening = [name for name in self._frames if _is_listening(workers[name])]
        return {name: self._assign(state, workers[name]) for name in listening}

    def _command(self, state: State, attempt: Attempt, worker: Worker) -> None:
        if attempt.state is _DISPATCHED:
            frame = self.frame(worker.name)
            if len(frame.runs) >= MAX_LONG_RUNS_PER_ASSIGN and not _has_space(frame):
                return
            frame.runs.append(state.jobs[attempt.job].runs.run(attempt.id))
        elif attempt.state is _CANCELLING:
            self.frame(worker.name).cancels.append(attempt.id)
        else:
            return
        attempt.sent = worker.assigned + 1

    def _assign(self, state: State, worker: Worker) -> Assign:
        worker.assigned += 1
        state.effects.workers[worker.name] = worker
        frame, notice = self._frames[worker.name], _notice(worker)
        return Assign(
            worker.assigned, worker.reported, tuple(frame.runs), tuple(frame.cancels), probation=notice
        )


def _has_space(frame: _Frame) -> bool:
    """For one more, however long. (Of few it need not be counted.)"""
    frame.length += sum(map(_length, frame.runs[frame.counted :]))
    frame.counted = len(frame.runs)
    is_short = frame.length <= (MAX_LONG_RUNS_PER_ASSIGN - 1) * MAX_RUN_CHARACTERS
    return len(frame.runs) < MAX_RUNS_PER_ASSIGN and is_short


def _notice(worker: Worker) -> Probation | None:
    """For the owner of the computer, in every frame: one that is lost is made up for by the next."""
    until = worker.probation_until
    return None if until is None else Probation(until, worker.probation_reason)


def _is_listening(worker: Worker) -> bool:
    """Its link is open and its first Report is in: what it holds is known."""
    return worker.session is not None and worker.reported > 0


def _length(run: Run) -> int:
    """Characters that it will have at most: the line of a row file is yet to be put in."""
    if run.row_file is not None:
        return MAX_RUN_CHARACTERS
    pairs = (*run.parameters.items(), *run.environment.items())
    named = sum(len(name) + len(str(value)) for name, value in pairs)
    inputs = sum(len(path) + _INPUT_CHARACTERS for path in run.own_inputs)
    return named + inputs + sum(map(len, run.command)) + sum(map(len, run.outputs))
