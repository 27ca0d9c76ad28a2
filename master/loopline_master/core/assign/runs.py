"""The runs of a job's tasks. They differ in a few fields only, which alone are computed for each."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from loopline_shared.model import AttemptId, Function
from loopline_shared.protocol.messages import Run
from loopline_shared.spec import JobSpec, RowFile, staged
from loopline_shared.sweep import Sweep


class Runs:
    """The runs of one job; the fields that all of them share are computed once."""

    __slots__ = ("_before", "_behind", "_sweep", "_tasks")

    def __init__(self, owner: str, spec: JobSpec, sweep: Sweep, inputs: str | None) -> None:
        needs, rows = spec.requires, spec.parameters
        memory_bytes, function = needs.memory_bytes or None, _function(owner, spec)
        self._sweep, self._tasks = sweep, spec.tasks
        self._before: tuple[Any, ...] = (
            spec.environment, spec.name, needs.slots, spec.timeout_s, memory_bytes, needs.network, inputs
        )  # fmt: skip
        self._behind = (tuple(spec.outputs), function, rows.sha256 if isinstance(rows, RowFile) else None)

    def run(self, attempt: AttemptId) -> Run:
        """Return the run that starts an attempt; its fields are given in their order."""
        number = attempt.task
        parameters = self._sweep.parameters_at(number)
        own_inputs = staged(self._tasks[number - 1].inputs) if self._tasks else {}
        command = self._sweep.command_at(number, parameters)
        return Run(attempt, command, parameters, *self._before, own_inputs, *self._behind)  # type: ignore[call-arg]


def _function(owner: str, spec: JobSpec) -> Function | None:
    """Return the function with its session hashed by user: other users cannot share the interpreter by its name."""
    if spec.function is None:
        return None
    return replace(spec.function, session=sha256(f"{owner}\0{spec.function.session}".encode()).hexdigest())
