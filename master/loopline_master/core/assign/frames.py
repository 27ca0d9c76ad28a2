"""The frames that follow from a step: at most one Assign for each worker concerned."""

from __future__ import annotations

from loopline_master.core.entities import Attempt, Worker
from loopline_master.core.state import State
from loopline_shared.model import AttemptId, AttemptState, Probation
from loopline_shared.protocol.messages import MAX_LONG_RUNS_PER_ASSIGN, MAX_RUNS_PER_ASSIGN, Assign, Run
from loopline_shared.spec import MAX_RUN_CHARACTERS

_INPUT_CHARACTERS = 150
"""Of an input of a task's own, beside its path."""


_TO_RUN = (AttemptState.DISPATCHED, AttemptState.PREFETCHED)
_TO_CANCEL = (AttemptState.CANCELLING, AttemptState.RETRACTING)


class Outbox:
    """Collects the workers that one step must write to; commands follow from the attempts that it changed."""

    def __init__(self) -> None:
        self._concerned: dict[str, None] = {}
        self._runs: dict[str, list[Run]] = {}
        self._cancels: dict[str, list[AttemptId]] = {}
        self._lengths: dict[str, tuple[int, int]] = {}  # of so many of these runs: characters

    def answer(self, worker: str) -> None:
        """Answer the worker's Report with an Assign, as every Report is answered."""
        self._concerned[worker] = None

    def cancel_stranger(self, worker: str, attempt: AttemptId) -> None:
        """Cancel an attempt that the worker holds although it is over, or was never given to it."""
        self._cancels.setdefault(worker, []).append(attempt)

    def seal(self, state: State) -> dict[str, Assign]:
        """Return the numbered frames, and note on each attempt which frame carries its command.

        Only workers that have reported in their open session get one: what they hold is known. A command that does
        not fit into a frame is sent when the worker's next Report shows that the worker does not hold the attempt.
        """
        workers = state.workers
        for attempt in state.effects.attempts.values():
            if attempt.sent == 0 and attempt.ended_at is None and workers[attempt.worker].reported:
                self._command(state, attempt, workers[attempt.worker])
        return {name: self._assign(state, workers[name]) for name in self._concerned if workers[name].reported}

    def _command(self, state: State, attempt: Attempt, worker: Worker) -> None:
        name = worker.name
        if attempt.state in _TO_RUN:
            runs = self._runs.get(name)
            if runs is None:
                runs = self._runs[name] = []
            elif len(runs) >= MAX_LONG_RUNS_PER_ASSIGN and not self._has_space(name, runs):
                return
            runs.append(state.jobs[attempt.job].runs.run(attempt.id))
        elif attempt.state in _TO_CANCEL:
            self._cancels.setdefault(name, []).append(attempt.id)
        else:
            return
        attempt.sent = worker.assigned + 1
        self._concerned[name] = None

    def _has_space(self, worker: str, runs: list[Run]) -> bool:
        """True if one more run fits into the worker's frame, however long. A few always fit; they are not counted."""
        length, counted = self._lengths.get(worker, (0, 0))
        length += sum(map(_length, runs[counted:]))
        self._lengths[worker] = length, len(runs)
        return len(runs) < MAX_RUNS_PER_ASSIGN and length <= (MAX_LONG_RUNS_PER_ASSIGN - 1) * MAX_RUN_CHARACTERS

    def _assign(self, state: State, worker: Worker) -> Assign:
        worker.assigned += 1
        state.effects.workers[worker.name] = worker
        runs, cancels = self._runs.get(worker.name, ()), self._cancels.get(worker.name, ())
        return Assign(worker.assigned, worker.reported, tuple(runs), tuple(cancels), probation=_notice(worker))


def _notice(worker: Worker) -> Probation | None:
    """Return the notice of a quarantine for the computer's owner; every frame repeats it, in case one is lost."""
    until = worker.probation_until
    return None if until is None else Probation(until, worker.probation_reason)


def _length(run: Run) -> int:
    """Return the most characters that the run can have; the line of a row file is filled in later."""
    if run.row_file is not None:
        return MAX_RUN_CHARACTERS
    pairs = (*run.parameters.items(), *run.environment.items())
    named = sum(len(name) + len(str(value)) for name, value in pairs)
    inputs = sum(len(path) + _INPUT_CHARACTERS for path in run.own_inputs)
    return named + inputs + sum(map(len, run.command)) + sum(map(len, run.outputs))
