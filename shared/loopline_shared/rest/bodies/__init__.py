"""Bodies of the REST API, which the master answers and the client reads; one set for both.

Requests are validated by the models in spec.py (jobs) and here; times are seconds since 1970, UTC.
"""

from loopline_shared.rest.bodies.base import Body, FieldError, Page, Problem
from loopline_shared.rest.bodies.jobs import (
    Counts,
    Eta,
    Expected,
    Explanation,
    JobDetail,
    JobPage,
    JobView,
    Ledger,
    LiveTotals,
    PlannedTask,
    Preview,
    Reason,
    Submission,
)
from loopline_shared.rest.bodies.reports import (
    ForecastReport,
    GridChange,
    Health,
    HistoryLine,
    HistoryReport,
    HistorySubject,
    MomentReport,
    Passing,
    PassingReport,
    PruneReport,
    PruneRequest,
)
from loopline_shared.rest.bodies.tasks import AttemptView, OutputFiles, TaskDetail, TaskResult, TaskView, VoteView
from loopline_shared.rest.bodies.workers import LastHour, ProgramView, WorkerView

__all__ = [
    "AttemptView",
    "Body",
    "Counts",
    "Eta",
    "Expected",
    "Explanation",
    "FieldError",
    "ForecastReport",
    "GridChange",
    "Health",
    "HistoryLine",
    "HistoryReport",
    "HistorySubject",
    "JobDetail",
    "JobPage",
    "JobView",
    "LastHour",
    "Ledger",
    "LiveTotals",
    "MomentReport",
    "OutputFiles",
    "Page",
    "Passing",
    "PassingReport",
    "PlannedTask",
    "Preview",
    "Problem",
    "ProgramView",
    "PruneReport",
    "PruneRequest",
    "Reason",
    "Submission",
    "TaskDetail",
    "TaskResult",
    "TaskView",
    "VoteView",
    "WorkerView",
]
