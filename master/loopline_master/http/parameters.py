"""Parameters that several operations share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from loopline_master.http.operations import Header
from loopline_shared.model import MAX_ID, NO_NUL, JobState, Name, Sha256, TaskState
from loopline_shared.paths import MAX_PATH_CHARACTERS


def _flag(value: object) -> object:
    """Return the boolean if it is written as in JSON."""
    return {"true": True, "false": False}.get(value, "neither") if isinstance(value, str) else value


JobNumber = Annotated[int, Field(ge=1, le=MAX_ID, description="The job's number", examples=[1])]
TaskNumber = Annotated[int, Field(ge=1, le=MAX_ID, description="The task's number within its job", examples=[1])]
WorkerName = Annotated[Name, Field(description="The worker's name")]
OutputPath = Annotated[
    str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS, description="Of a file, as the task left it")
]
FileHash = Annotated[Sha256, Field(description="SHA-256 of the content, in hex")]
InJobState = Annotated[JobState, Field(description="Only jobs in this state")]
InTaskState = Annotated[TaskState, Field(description="Only tasks in this state")]
OnlyLive = Annotated[
    bool,
    BeforeValidator(_flag),
    Field(
        description="Only live jobs (those that are not over), in the order of their arrival; jobs outside the grid "
        "come last. The answer's `live` has totals over all of them"
    ),
]
OfOwner = Annotated[Name, Field(description="Only jobs that this user submitted")]
Cursor = Annotated[
    str, Field(max_length=200, pattern=r"^[ -~]*$", description="Where to go on: `next` of the page before")
]
Limit = Annotated[int, Field(ge=1, le=1000, description="At most so many items")]
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False, description="Seconds since 1970")]
ResultCursor = Annotated[
    str, Field(pattern=r"^\d{1,15}\.\d{1,12}@\d{1,15}$", description="Where to go on: `cursor` of a line before")
]
Follow = Annotated[bool, BeforeValidator(_flag), Field(description="Go on until the job has ended")]
FollowTask = Annotated[bool, BeforeValidator(_flag), Field(description="Go on until the task is over")]
RestSeconds = Annotated[float, Field(ge=0.005, le=60, description="Pause after each event: what changes is gathered")]
ContentRange = Annotated[
    str,
    Header("Content-Range"),
    Field(pattern=r"^bytes \d{1,15}-\d{1,15}/\d{1,15}$", description="Which part of the file this is: its end"),
]
WithLastHour = Annotated[
    bool, BeforeValidator(_flag), Field(description="Also what each did in the last hour, against what it promised")
]
OfProgram = Annotated[str, Field(max_length=200, pattern=NO_NUL, description="Only programs of this name")]
IdempotencyKey = Annotated[
    str,
    Header("Idempotency-Key"),
    Field(
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Chosen by the client: however often the same body comes under one key, there is one job",
    ),
]
