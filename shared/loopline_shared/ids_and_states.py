"""Ids of tasks and attempts, states of jobs and tasks, and orders: the part of the model that command lines name."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pydantic_core

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

MAX_ID = 2**53 - 1  # the largest number that survives every JSON reader


class _DottedId:
    """Base of the ids, written as dotted numbers (``12.3.1``) in JSON, URLs and logs."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"12.3.1"``. Raises ValueError that names the expected form."""
        parts = text.split(".")
        fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        if len(parts) != len(fields) or not all(p.isascii() and p.isdigit() and len(p) < 17 for p in parts):
            raise ValueError(f"expected {'.'.join(fields)} as numbers, got {text[:80]!r}")
        return cls._of_numbers(text)

    @classmethod
    def _of_numbers(cls, text: str) -> Self:
        """Read text that is known to be valid."""
        return tuple.__new__(cls, map(int, text.split(".")))  # type: ignore[type-var]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> pydantic_core.CoreSchema:
        fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        core_schema = pydantic_core.core_schema
        text = core_schema.str_schema(pattern=r"^[0-9]{1,16}" + r"\.[0-9]{1,16}" * (len(fields) - 1) + "$")
        from_text = core_schema.no_info_after_validator_function(cls._of_numbers, text)
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_text]),
            serialization=core_schema.to_string_ser_schema(),
        )


class _TaskFields(NamedTuple):
    job: int
    task: int


class TaskId(_DottedId, _TaskFields):
    """The ``task``-th task (from 1) of a job: ``12.3``."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.job}.{self.task}"


class _AttemptFields(NamedTuple):
    job: int
    task: int
    number: int


class AttemptId(_DottedId, _AttemptFields):
    """The ``number``-th attempt (from 1, never reused) at a task: ``12.3.1``. The paper's *instance*."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.job}.{self.task}.{self.number}"

    @property
    def task_id(self) -> TaskId:
        return TaskId(self.job, self.task)


class JobState(StrEnum):
    WAITING = "waiting"  # for other jobs to succeed: not yet in the grid
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Order(StrEnum):
    """Order guarantee about completions; stamped on a job when it is submitted."""

    HOLD = "hold"  # its last task starts after the jobs have completed that it must not pass
    DELIVER = "deliver"  # it is computed freely, and completes after them
    NONE = "none"


class OrderWithin(StrEnum):
    """Jobs among which a job's order guarantee holds; stamped on it, as the order is."""

    GRID = "grid"  # all jobs
    USER = "user"  # those of its own user
