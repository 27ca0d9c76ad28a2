"""Whose turn it is."""

from __future__ import annotations

from master.api.operations import Routes
from master.api.services import Services
from master.auth import READERS
from master.scheduling.queue import queue
from shared.columns import Queue

routes = Routes("jobs")


@routes("GET /queue", READERS)
async def get_queue(services: Services) -> Queue:
    """The jobs in the grid in the order in which the policy comes to them, and which job holds each; then those
    that wait for others to succeed.
    """
    return Queue(queue(services.scheduler.state))
