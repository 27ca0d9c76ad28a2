"""The queue: jobs in the order of their turns."""

from __future__ import annotations

from loopline_master.core.explain.queue_view import queue
from loopline_master.core.scheduler import Scheduler
from loopline_master.http.auth import READERS
from loopline_master.http.operations import Routes
from loopline_shared.rest.columns import Queue

routes = Routes("jobs")


@routes("GET /queue", READERS)
async def get_queue(scheduler: Scheduler) -> Queue:
    """List the jobs in the grid in the order of the policy, with the job that holds each.

    Jobs that wait for others to succeed come last.
    """
    return Queue(queue(scheduler.state))
