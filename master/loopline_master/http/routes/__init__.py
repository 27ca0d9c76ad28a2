"""The operations of the REST API: one file a subject, registered by its line here.

The order is that of the OpenAPI document.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from loopline_master.http.operations import Operation, Routes

SUBJECTS = (
    "routes.jobs",
    "routes.previews",
    "routes.queue",
    "routes.tasks",
    "routes.outputs",
    "routes.timeline",
    "routes.samples",
    "live.streams",
    "live.client_link",
    "routes.workers",
    "routes.programs",
    "routes.files",
    "routes.pruning",
    "routes.history",
    "routes.session",
    "routes.tokens",
    "routes.joining",
    "trusted_by",
    "routes.system",
    "api_docs",
)


@cache
def all_operations() -> list[Operation]:
    """Return the operations of all subjects."""
    return [operation for subject in SUBJECTS for operation in operations_of(subject)]


def operations_of(subject: str) -> list[Operation]:
    """Return the operations of a subject, which is imported for them."""
    routes = import_module(f"loopline_master.http.{subject}").routes
    assert isinstance(routes, Routes)
    return list(routes)
