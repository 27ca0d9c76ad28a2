"""Parameters that several operations share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from loopline_master.http.operations import Header
from loopline_master.store.queries.job_queries import SORTS
from loopline_shared.model import MAX_ID, NO_NUL, JobState, Name, Sha256, TaskState
from loopline_shared.parallel import MAX_NODES
from loopline_shared.paths import MAX_PATH_CHARACTERS
from loopline_shared.rest.times import Moment


def flag(value: object) -> object:
    """Return the boolean if it is written as in JSON."""
    return {"true": True, "false": False}.get(value, "neither") if isinstance(value, str) else value


JobNumber = Annotated[int, Field(ge=1, le=MAX_ID, description="The job's number", examples=[1])]
TaskNumber = Annotated[int, Field(ge=1, le=MAX_ID, description="The task's number within its job", examples=[1])]
Rank = Annotated[int, Field(ge=0, lt=MAX_NODES, description="Of a task on several nodes: the member with this rank")]
WorkerName = Annotated[Name, Field(description="The worker's name")]
DrainReason = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="Why, in one line: users see it at the worker",
        examples=["new graphics card, back on Monday"],
    ),
]
OutputPath = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PATH_CHARACTERS, description="The file's path in the task's scratch folder"),
]
FileHash = Annotated[Sha256, Field(description="SHA-256 of the content, in hex")]
InJobState = Annotated[JobState, Field(description="Only jobs in this state")]
InTaskState = Annotated[TaskState, Field(description="Only tasks in this state")]
OnlyLive = Annotated[
    bool,
    BeforeValidator(flag),
    Field(
        description="Only live jobs (those that are not over), in the order of their arrival; jobs outside the grid "
        "come last. The answer's `live` has totals over all of them"
    ),
]
EndedSince = Annotated[Moment, Field(description="Only jobs that ended at this time or later, RFC 3339 or seconds")]
EndedUntil = Annotated[Moment, Field(description="Only jobs that ended before this time, RFC 3339 or seconds")]
OfUser = Annotated[Name, Field(description="Only jobs of this user")]
Named = Annotated[str, Field(min_length=1, max_length=200, description="Only jobs whose name contains this text")]
WithLabel = Annotated[Name, Field(description="Only jobs whose workers must have this label")]
JobSort = Annotated[
    str,
    Field(
        pattern=f"^-?({'|'.join(SORTS)})$",
        description="The order, with a minus the largest first: by id, name, user, size, tasks, submitted, ended or "
        "took. Live jobs stay in the order of their arrival",
    ),
]
Cursor = Annotated[
    str, Field(max_length=200, pattern=r"^[ -~]*$", description="Where to continue: `next` of the previous page")
]
Limit = Annotated[int, Field(ge=1, le=1000, description="The most items to return")]
ResultCursor = Annotated[
    str, Field(pattern=r"^\d{1,15}\.\d{1,12}@\d{1,15}$", description="Where to continue: `cursor` of an earlier line")
]
Follow = Annotated[bool, BeforeValidator(flag), Field(description="Continue until the job has ended")]
Prefer = Annotated[
    str,
    Header("Prefer"),
    Field(
        max_length=200, description="With wait=1 the answer may come a moment later, to have results of a short job"
    ),
]
FollowTask = Annotated[bool, BeforeValidator(flag), Field(description="Continue until the task is over")]
RestSeconds = Annotated[
    float, Field(ge=0.005, le=60, description="Pause after each event, during which changes are collected")
]
LastEventId = Annotated[
    str, Header("Last-Event-ID"), Field(max_length=200, description="The id of the last event: continue after it")
]
AfterEvent = Annotated[
    str, Field(max_length=200, description="The same as Last-Event-ID, for a browser's own first connection")
]
ContentRange = Annotated[
    str,
    Header("Content-Range"),
    Field(
        pattern=r"^bytes \d{1,15}-\d{1,15}/\d{1,15}$", description="The part of the file that this is, up to its end"
    ),
]
WithLastHour = Annotated[
    bool,
    BeforeValidator(flag),
    Field(description="Add the work that each worker offered in the last hour, and the share that tasks used"),
]
DrainNow = Annotated[bool, BeforeValidator(flag), Field(description="End its running tasks, and queue them again")]
TestWake = Annotated[
    bool, BeforeValidator(flag), Field(description="Suspend an idle computer, and wake it: does waking work?")
]
WithParameters = Annotated[bool, BeforeValidator(flag), Field(description="Add each task's parameters")]
OnlyTasks = Annotated[
    str,
    Field(
        max_length=2000,
        pattern=r"^\d{1,15}(,\d{1,15})*$",
        description="Only these of the failed tasks, by their numbers; the others stay as they are",
        examples=["3,7"],
    ),
]
FromStart = Annotated[
    bool, BeforeValidator(flag), Field(description="Without the checkpoints that the tasks have kept")
]
OfProgram = Annotated[str, Field(max_length=200, pattern=NO_NUL, description="Only programs of this name")]
IdempotencyKey = Annotated[
    str,
    Header("Idempotency-Key"),
    Field(
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Chosen by the client: requests with the same key and body submit one job",
    ),
]
