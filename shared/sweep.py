"""A sweep is kept as its rule; the n-th task is worked out when it is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shared.scalar import Scalar
from shared.spec import PLACEHOLDER, JobSpec, Table, TaskSpec


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task, worked out: what to run, with which parameters, how large (reference CPU-seconds)."""

    command: tuple[str, ...]
    parameters: dict[str, Scalar]
    size: float | None


def task_at(spec: JobSpec, number: int) -> TaskPlan:
    """The ``number``-th task (from 1) of a job; IndexError outside its tasks."""
    if not 1 <= number <= spec.task_count:
        raise IndexError(f"task {number} of {spec.task_count}")
    listed = spec.tasks[number - 1] if spec.tasks else TaskSpec()
    parameters = listed.parameters if spec.tasks else _parameters_at(spec, number - 1)
    command = listed.command or spec.command or []
    return TaskPlan(tuple(_fill(argument, parameters) for argument in command), parameters, size_at(spec, number))


def size_at(spec: JobSpec, number: int) -> float | None:
    """Size of one task: its own, else an equal share of its job's."""
    own = spec.tasks[number - 1].size if spec.tasks else None
    if own is not None or spec.size is None or spec.size == "unknown":
        return own
    return spec.size / spec.task_count


def _parameters_at(spec: JobSpec, index: int) -> dict[str, Scalar]:
    if spec.parameters is None:
        return {}
    if isinstance(spec.parameters, Table):
        return spec.parameters.rows[index]
    chosen: dict[str, Scalar] = {}
    for name, values in reversed(spec.parameters.items()):
        index, place = divmod(index, len(values))
        chosen[name] = values[place]
    return {name: chosen[name] for name in spec.parameters}


def _fill(argument: str, parameters: dict[str, Scalar]) -> str:
    """Put parameters in place of ``{name}``; braces that name none stay, so shell and JSON pass through."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return _text(parameters[name]) if name in parameters else match.group(0)

    return PLACEHOLDER.sub(value, argument)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
