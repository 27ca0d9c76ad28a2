"""A sweep is kept as its rule; the n-th task is worked out when it is needed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from shared.scalar import Scalar
from shared.spec import PLACEHOLDER, JobSpec, RowFile, Table, TaskSpec


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task, worked out: what to run, with which parameters, how large (reference CPU-seconds)."""

    command: tuple[str, ...]
    parameters: dict[str, Scalar]
    size: float | None


def task_at(spec: JobSpec, number: int, row: Mapping[str, Scalar] | None = None) -> TaskPlan:
    """The ``number``-th task (from 1) of a job; IndexError outside its tasks.

    ``row`` is its line of the job's row file; without it, a task of such a job has no parameters, and its command
    is yet to be filled in.
    """
    if not 1 <= number <= spec.task_count:
        raise IndexError(f"task {number} of {spec.task_count}")
    listed = spec.tasks[number - 1] if spec.tasks else TaskSpec()
    parameters = listed.parameters if spec.tasks else _parameters_at(spec, number - 1)
    if row is not None and isinstance(spec.parameters, RowFile):
        parameters = dict(row)
    command = listed.command or spec.command or []
    return TaskPlan(fill(command, parameters), parameters, size_at(spec, number))


def size_at(spec: JobSpec, number: int) -> float | None:
    """Size of one task: its own, else an equal share of its job's."""
    own = spec.tasks[number - 1].size if spec.tasks else None
    if own is not None or spec.size is None or spec.size == "unknown":
        return own
    return spec.size / spec.task_count


def fill(command: Iterable[str], parameters: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Put parameters in place of ``{name}``; braces that name none stay, so shell and JSON pass through."""
    return tuple(_fill(argument, parameters) for argument in command)


def placeholders(spec: JobSpec) -> list[str]:
    """Names in braces in a job's own command, each once. ``${NAME}`` is the shell's."""
    return list(dict.fromkeys(name for argument in spec.command or () for name in _OURS.findall(argument)))


def unknown_names(spec: JobSpec, known: Collection[str] | None = None) -> list[str]:
    """Warnings about names in braces that no parameter of a sweep has: most likely they are misspelt.

    ``known``: the parameters' names, where they are in a row file.
    """
    if spec.parameters is None or (known is None and isinstance(spec.parameters, RowFile)):
        return []
    names = _names(spec) if known is None else known
    return [_unknown(name, names) for name in placeholders(spec) if name not in names]


_OURS = re.compile(r"(?<!\$)" + PLACEHOLDER.pattern)


def _names(spec: JobSpec) -> set[str]:
    if isinstance(spec.parameters, Table):
        return set().union(*spec.parameters.rows)
    return set() if spec.parameters is None or isinstance(spec.parameters, RowFile) else set(spec.parameters)


def _unknown(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {{{close[0]}}}?" if close else f"there is {', '.join(sorted(known)[:10])}"
    return f"the command says {{{name}}}, but no parameter is called so, and it stays as it is: {meant}"


def _parameters_at(spec: JobSpec, index: int) -> dict[str, Scalar]:
    if spec.parameters is None or isinstance(spec.parameters, RowFile):
        return {}
    if isinstance(spec.parameters, Table):
        return spec.parameters.rows[index]
    chosen: dict[str, Scalar] = {}
    for name, values in reversed(spec.parameters.items()):
        index, place = divmod(index, len(values))
        chosen[name] = values[place]
    return {name: chosen[name] for name in spec.parameters}


def _fill(argument: str, parameters: Mapping[str, Scalar]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return _text(parameters[name]) if name in parameters else match.group(0)

    return PLACEHOLDER.sub(value, argument)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
