"""Programs as users see them: the knowledge from their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import Connection

from loopline_master.core.estimates.program_history import predict, quantile
from loopline_master.core.kernel.entities import Program
from loopline_master.store.database import Transact
from loopline_master.store.queries.paging import after, moment, number
from loopline_master.store.rows import PROGRAMS
from loopline_master.store.tables import programs
from loopline_shared.rest.bodies import Page, ProgramView, RunView

_LATER = 1e300
"""A time later than any moment."""


class ProgramQueries:
    """Reads programs."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def page(
        self, *, owner: str | None = None, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[ProgramView]:
        """Return a page of programs, the latest used first.

        Of several programs used at one moment the cursor says how many were shown.
        """
        before, shown = after(cursor, _place, (_LATER, 0))
        newest = (programs.c.used_at.desc(), programs.c.owner, programs.c.name, programs.c.folder)
        query = PROGRAMS.select().where(programs.c.used_at <= before).order_by(*newest)
        if owner is not None:
            query = query.where(programs.c.owner == owner)
        if name is not None:
            query = query.where(programs.c.name == name)

        def work(connection: Connection) -> list[Program]:
            return [PROGRAMS.entity(row) for row in connection.execute(query.offset(shown).limit(limit + 1))]

        found = await self._read(work)
        cut = found[:limit]
        following = _cursor(cut, before, shown) if len(found) > limit else None
        return Page[ProgramView](items=[_view(program) for program in cut], next=following)


def _place(cursor: str) -> tuple[float, int]:
    at, _, shown = cursor.partition("@")
    return moment(at), number(shown)


def _cursor(items: list[Program], before: float, shown: int) -> str:
    last = items[-1].used_at
    same = sum(program.used_at == last for program in items)
    return f"{last!r}@{same + shown if last == before else same}"


def _view(program: Program) -> ProgramView:
    window, fields = program.window, ("name", "folder", "runs", "first_run_at", "used_at", "changed_at")
    return ProgramView(
        user=program.owner,
        **{name: getattr(program, name) for name in fields},
        predicted=predict(program),
        wall_s=_median(run.wall_s for run in window),
        cpu_s=_median(run.cpu_s for run in window),
        system_s=_median(run.system_s for run in window),
        peak_memory_bytes=round(_median(run.peak_memory_bytes for run in window)),
        workers=dict(Counter(run.worker for run in window).most_common()),
        latest=[RunView(**asdict(run)) for run in window],
    )


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return quantile(ordered, 0.5) if ordered else 0.0
