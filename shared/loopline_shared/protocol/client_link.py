"""Messages between a client that calls functions and the master: submissions up, results down, on one link.

The link is a WebSocket with JSON. The master follows each job that was submitted on the link, and each named by a
Follow, and sends every result as soon as it is on disk. A client that lost the link opens another one, repeats its
unanswered submissions under their old keys, and follows on from the last ``cursor``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from loopline_shared.errors import ProtocolError
from loopline_shared.model import MAX_ID, JobState, Output, TaskState
from loopline_shared.rest.bodies import FieldError
from loopline_shared.spec import JobSpec

Number = Annotated[int, Field(ge=0, le=MAX_ID)]
Cursor = Annotated[str, Field(pattern=r"^(\d{1,15}\.\d{1,12}@\d{1,15})?$")]


@dataclass(frozen=True, slots=True)
class Submit:
    """Client to master. ``number`` counts from 1; ``again`` is the key that the submission had on another link.

    ``is_patient``: the client supports Ends with ``accepted``, which may be the submission's only acknowledgement.
    """

    number: Number
    job: JobSpec
    again: Annotated[str, Field(max_length=200, pattern=r"^[!-~]*$")] = ""
    is_patient: bool = False
    kind: Literal["submit"] = "submit"


@dataclass(frozen=True, slots=True)
class Follow:
    """Client to master: send the results of this job that come after ``cursor``."""

    job: Annotated[int, Field(ge=1, le=MAX_ID)]
    cursor: Cursor = ""
    kind: Literal["follow"] = "follow"


@dataclass(frozen=True, slots=True)
class Drop:
    """Client to master: stop following this job."""

    job: Annotated[int, Field(ge=1, le=MAX_ID)]
    kind: Literal["drop"] = "drop"


@dataclass(frozen=True, slots=True)
class Opened:
    """Master to client, first: the unique name of this link."""

    link: str
    kind: Literal["opened"] = "opened"


@dataclass(frozen=True, slots=True)
class JobAccepted:
    """Master to client: the job is on disk, and followed."""

    number: Number
    job: int
    kind: Literal["submitted"] = "submitted"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Master to client: the submission is declined and has no effect."""

    number: Number
    status: int
    code: str
    message: str
    _: KW_ONLY
    hint: str = ""
    errors: list[FieldError] = field(default_factory=list)
    kind: Literal["refusal"] = "refusal"


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """End of a task: the part of ``TaskResult`` that its client does not know."""

    number: int
    state: TaskState
    worker: str | None
    _: KW_ONLY
    exit_code: int | None
    reason: str
    value: Output | None


@dataclass(frozen=True, slots=True)
class Ends:
    """Master to client: finished tasks of a job, up to ``cursor``.

    ``over`` is the state of the job if it has ended with these tasks. ``accepted``: the number of a patient
    submission that has no other answer than this.
    """

    job: int
    cursor: Cursor
    ends: list[TaskEnd]
    over: JobState | None = None
    _: KW_ONLY
    accepted: Number = 0
    kind: Literal["ends"] = "ends"


@dataclass(frozen=True, slots=True)
class Over:
    """Master to client: the job has ended and all results are sent; ``state`` is None if the job is unknown."""

    job: int
    state: JobState | None
    kind: Literal["over"] = "over"


@dataclass(frozen=True, slots=True)
class _Numbered:
    number: Number


ToMaster = Annotated[Submit | Follow | Drop, Field(discriminator="kind")]
ToClient = Annotated[Opened | JobAccepted | Refusal | Ends | Over, Field(discriminator="kind")]
_AT_FIRST_USE = ConfigDict(defer_build=True)  # a start does not wait for them
_to_master: TypeAdapter[Submit | Follow | Drop] = TypeAdapter(ToMaster, config=_AT_FIRST_USE)
_numbered: TypeAdapter[_Numbered] = TypeAdapter(_Numbered)
_to_client: TypeAdapter[Opened | JobAccepted | Refusal | Ends | Over] = TypeAdapter(ToClient, config=_AT_FIRST_USE)


def encode_to_master(message: Submit | Follow | Drop) -> bytes:
    return _to_master.dump_json(message)


def encode_to_client(message: Opened | JobAccepted | Refusal | Ends | Over) -> bytes:
    return _to_client.dump_json(message)


def number_of(frame: bytes | str) -> int | None:
    """Return the number of an invalid submission; None for any other frame."""
    with suppress(ValidationError):
        return _numbered.validate_json(frame).number
    return None


def decode_from_client(frame: bytes | str) -> Submit | Follow | Drop:
    """Read a client's frame. Raises ValidationError, which is reported to the submitter."""
    return _to_master.validate_json(frame)


def decode_from_master(frame: bytes | str) -> Opened | JobAccepted | Refusal | Ends | Over:
    """Read a master's frame. Raises ProtocolError if it is invalid."""
    try:
        return _to_client.validate_json(frame)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ProtocolError(f"malformed frame: {first['loc']}: {first['msg']}") from None


def key_of(link: str, number: int) -> str:
    """Return the Idempotency-Key of a submission: repeated submissions create one job."""
    return f"{link}.{number}"
