"""Bodies about the tasks of a job, their attempts and their results."""

from __future__ import annotations

from pydantic import Field

from loopline_shared.model import AttemptId, AttemptState, Output, OutputFile, Phases, Stream, TaskId, TaskState
from loopline_shared.protocol.attempt_figures import Metrics
from loopline_shared.rest.bodies.base import Body
from loopline_shared.rest.times import Time
from loopline_shared.scalar import Scalar


class ResumedView(Body):
    """The checkpoint that an attempt has continued from."""

    times: int  # the number of this resumption of its task, from 1
    worker: str  # where the checkpoint was taken
    cpu_s: float  # CPU time in it, from the beginning of the task
    wall_s: float
    progress: float | None = None  # of the task in it, as that tells; null: it does not


class CheckpointView(Body):
    """A checkpoint of a task that the master keeps."""

    attempt: AttemptId  # that took it
    worker: str
    taken_at: Time  # as the master got to know of it
    cpu_s: float  # CPU time in it, from the beginning of the task
    wall_s: float
    size_bytes: int
    sent_bytes: int  # uploaded for it; the rest was in the store already
    times: int  # resumptions before it
    failed_on: list[str]  # workers of attempts that failed after they had continued from it
    progress: float | None = None  # of the task, as that tells; null: it does not
    step: int | None = None  # of a gang's member: the N of its newest folder step-N; null: of no gang
    manifest: str  # SHA-256 of the file that lists its pieces, which are files, too


class CheckpointList(Body):
    """The checkpoints of a task, the newest first: the one with the most work."""

    items: list[CheckpointView]


class AttemptView(Body):
    id: AttemptId
    worker: str
    state: AttemptState
    rank: int | None = Field(None, description="of a gang's member; null: its task runs on one worker")
    replica: bool
    accepted: bool  # its result is the task's
    dispatched_at: Time
    started_at: Time | None
    ended_at: Time | None
    exit_code: int | None
    reason: str
    wall_s: float
    cpu_s: float
    system_s: float = 0.0  # system part of cpu_s
    peak_memory_bytes: int
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    output_count: int = 0  # files that it left
    slot: int | None = Field(None, description="the lowest of its worker's slots that it has; null: not said")
    gpus: list[str] | None = Field(None, description="ids of its GPUs; null: its job asks for no GPU")
    phases: Phases | None = Field(
        None, description="when they were over; null: it had all that it needed, and ran all the time, or not said"
    )
    resumed: ResumedView | None = Field(None, description="the checkpoint that it continued from; null: none")


class TaskView(Body):
    id: TaskId
    number: int
    state: TaskState
    failures: int
    started_at: Time | None
    finished_at: Time | None
    worker: str | None  # of the accepted result, else of the latest attempt
    exit_code: int | None
    reason: str
    mismatch: bool = False  # two of its results differ
    began_at: Time | None = None  # when its attempt began that the fields above are of; null: not yet
    wall_s: float | None = None  # how long that attempt ran; null: it has not ended
    prefetched: bool = False  # that attempt waits at its worker for a slot
    resumed: ResumedView | None = Field(None, description="the checkpoint that attempt continued from; null: none")
    progress: float | None = Field(None, description="part of it that is done, as it tells; null: it does not")
    parameters: dict[str, Scalar] | None = None  # null: not asked for, or not to be read any more
    metrics: Metrics | None = Field(None, description="what the task wrote to the file named by LOOPLINE_RESULT")


class VoteView(Body):
    """Digest of one attempt's result: equal digests mean equal results."""

    attempt: int
    worker: str
    digest: str


class TaskDetail(TaskView):
    job_task_count: int | None = None  # tasks of its job; null: the master does not say
    command: list[str]
    parameters: dict[str, Scalar]
    votes: list[VoteView] = Field(default=[])  # results that were compared
    attempts: list[AttemptView]
    outputs: list[OutputFile] = Field(
        default=[],
        description="of its accepted attempt; of a failed task, of its last one; of a gang, in folders by rank",
    )


class TaskResult(TaskView):
    """A line of ``GET /jobs/{id}/results``: a finished task with its output (UTF-8, invalid bytes replaced)."""

    parameters: dict[str, Scalar]
    stdout: str
    stdout_cut: bool  # shortened, by the worker's cap or for this list
    value: Output | None = None
    # Of a function: a pickle of its value, or of (exception, traceback). If a task makes several calls, the ends of
    # all of them, one after the other (protocol/chunks.py).
    cursor: str = ""  # a request with it continues after this line


class FailureKind(Body):
    """Failed tasks of several jobs with one exit code and one reason, apart from numbers and their own parameters."""

    exit_code: int | None
    reason: str  # of the example; mostly the last line of its stderr
    tasks: int
    jobs: list[int]  # the latest first
    example: TaskId  # of the latest job


class FailureReport(Body):
    """Failures of the latest jobs with failed tasks, the most frequent kind first."""

    kinds: list[FailureKind]  # by exit code and reason
    job_count: int  # jobs with failed tasks that were read
    truncated: bool  # there are more such jobs in this time


class FoundLine(Body):
    """A line of a task's output that contains the text."""

    task: TaskId
    stream: Stream  # of the task that printed it
    line: int = Field(description="its number, from 1")
    text: str = Field(description="the line, or 500 bytes of it around the text (UTF-8, invalid bytes replaced)")


class OutputFiles(Body):
    """Output files of a task that match its job's outputs."""

    items: list[OutputFile]
