"""At random (an alternative of dynamic-load.md): each task to any worker that can take it."""

from __future__ import annotations

from collections.abc import Iterator

from loopline_master.core.policies.view import Placement, View
from loopline_master.core.policies.worker_index import Candidates, tasks_in_order


def plan(view: View) -> Iterator[Placement]:
    return tasks_in_order(view, view.own(Anybody))


class Anybody(Candidates):
    """All are equally good."""
