"""Sweeps, kept as a rule: the n-th task is computed on demand.

``task_at`` serves single tasks; callers that need many tasks of one job read its rule once (``Sweep``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from loopline_shared.job.parameters import Range, RowFile, Table
from loopline_shared.job_files import all_outputs, input_files
from loopline_shared.protocol.templates import Template, meant, names_in, unknown_name
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Command, parameters and size (reference CPU-seconds) of one task."""

    command: tuple[str, ...]
    parameters: dict[str, Scalar]
    size: float | None


class Sweep:
    """The rule of a job's tasks, read once."""

    __slots__ = ("_axes", "_command", "_of_file", "_rows", "_share", "_tasks", "count", "is_sized", "least")

    def __init__(self, spec: JobSpec) -> None:
        self.count = spec.task_count
        self._tasks = spec.tasks
        self._of_file: dict[str, list[int]] | None = None
        self._command = Template(spec.command or [])
        self._share = None if spec.size is None or spec.size == "unknown" else spec.size / max(1, self.count)
        share = self._share or 0.0
        sizes = (share if task.size is None else task.size for task in self._tasks or ())
        self.least = min(sizes, default=share)  # size of its smallest task; 0 where one is not known
        self.is_sized = share > 0 or any(task.size is not None for task in self._tasks or ())  # of any, it is known
        rule = spec.parameters
        self._rows = rule.rows if isinstance(rule, Table) else None
        self._axes = [] if rule is None or isinstance(rule, Table | RowFile) else _axes(rule)

    def command_at(self, number: int, parameters: Mapping[str, Scalar]) -> tuple[str, ...]:
        """Return the task's command with these parameters filled in."""
        own = self._tasks[number - 1].command if self._tasks else None
        return fill(own, parameters) if own else self._command.fill(parameters)

    def parameters_at(self, number: int) -> dict[str, Scalar]:
        if self._tasks:
            return self._tasks[number - 1].parameters
        if self._rows is not None:
            return self._rows[number - 1]
        index, parameters = number - 1, {}
        for name, values, stride, count in self._axes:  # (dearer as a comprehension: most have one parameter)
            parameters[name] = values[index // stride % count]
        return parameters

    def size_at(self, number: int) -> float | None:
        """Return the size of one task: its own, else an equal share of its job's."""
        own = self._tasks[number - 1].size if self._tasks else None
        return self._share if own is None else own

    def tasks_with(self, sha256: str) -> Sequence[int]:
        """Return the tasks that have this file as an input of their own."""
        if self._of_file is None:  # read at the first question: few jobs are ever asked
            self._of_file = {}
            for number, task in enumerate(self._tasks or (), 1):
                for file in input_files(task.inputs).values():
                    self._of_file.setdefault(file.sha256, []).append(number)
        return self._of_file.get(sha256, ())

    @property
    def is_uniform(self) -> bool:
        """True if all tasks are of one size, known or unknown."""
        return not self._tasks


def task_at(spec: JobSpec, number: int, row: Mapping[str, Scalar] | None = None) -> TaskPlan:
    """Return the ``number``-th task (from 1) of a job. Raises IndexError outside its tasks.

    ``row`` is its line of the job's row file; without it, a task of such a job has no parameters, and its command is
    unfilled.
    """
    sweep = Sweep(spec)
    if not 1 <= number <= sweep.count:
        raise IndexError(f"task {number} of {sweep.count}")
    has_row = row is not None and isinstance(spec.parameters, RowFile)
    parameters = dict(row) if row is not None and has_row else sweep.parameters_at(number)
    return TaskPlan(sweep.command_at(number, parameters), parameters, sweep.size_at(number))


def size_at(spec: JobSpec, number: int) -> float | None:
    """Return the size of one task: its own, else an equal share of its job's."""
    own = spec.tasks[number - 1].size if spec.tasks else None
    if own is not None or spec.size is None or spec.size == "unknown":
        return own
    return spec.size / spec.task_count


def fill(command: Iterable[str], parameters: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Replace ``{name}`` by parameters; other braces stay, so that shell and JSON pass through."""
    return Template(command).fill(parameters)


def placeholders(spec: JobSpec) -> list[str]:
    """Return the names in braces in a job's own command, each once. ``${NAME}`` is the shell's."""
    return names_in(spec.command or ())


def unknown_names(spec: JobSpec, known: Collection[str] | None = None) -> list[str]:
    """Return warnings about names in braces that match no parameter: they are most likely misspelt.

    ``known`` gives the parameters' names if they are in a row file.
    """
    if spec.parameters is None or (known is None and isinstance(spec.parameters, RowFile)):
        return []
    names = parameter_names(spec) if known is None else known
    return [_unknown(name, names) for name in placeholders(spec) if name not in names]


def check_names(spec: JobSpec, known: Collection[str]) -> None:
    """Raises ValueError if outputs or environment have a name in braces that is none of these parameters."""
    for texts, where in (
        (all_outputs(spec.outputs), "outputs"),
        (spec.environment.values(), "environment variables"),
    ):
        if problem := unknown_name(texts, known, where):
            raise ValueError(problem)


def parameter_names(spec: JobSpec) -> set[str]:
    """Return the names of a sweep's parameters; none where they are in a row file."""
    if spec.tasks is not None:
        return set().union(*(task.parameters for task in spec.tasks))
    if isinstance(spec.parameters, Table):
        return set().union(*spec.parameters.rows)
    return set() if spec.parameters is None or isinstance(spec.parameters, RowFile) else set(spec.parameters)


def _unknown(name: str, known: Collection[str]) -> str:
    unchanged = f"no parameter has this name, so {{{name}}} is left unchanged"
    return f"the command says {{{name}}}, but {unchanged}: {meant(name, known)}"


def _axes(parameters: Mapping[str, Range | list[Scalar]]) -> list[tuple[str, Sequence[Scalar], int, int]]:
    """Return for each parameter of a grid its name, its values, the tasks for which it keeps one, and their
    number.
    """
    axes: list[tuple[str, Sequence[Scalar], int, int]] = []
    stride = 1
    for name, rule in reversed(list(parameters.items())):
        values = rule.values if isinstance(rule, Range) else rule
        axes.append((name, values, stride, len(values)))
        stride *= len(values)
    return axes[::-1]
