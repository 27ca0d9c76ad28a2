"""The best rates, by HiGHS; fair ones by filling up where the extra ``loopline[planner]`` is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from math import inf

from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.pipeline import PlanRequest, TransferPlan
from loopline_master.core.wings.transfers.programme import LinearProgramme, Share, Solve, Term
from loopline_master.core.wings.transfers.transfer_planner import plan
from loopline_shared.errors import LooplineError

_ROUNDING = 1e-6
"""Bytes per second: as far as that, HiGHS may be off its bounds, on either side."""


_AS_GOOD = 1 - 5e-7
"""Share of the greatest objective that rates have which are shared out better."""
_SHARED_OUT_UP_TO = 100
"""Most pipelines to share out: among more, each is a small part, and the second programme would take too long."""
_WORTH = ((0.25, 4.0), (0.25, 2.0), (0.5, 1.0))
"""Parts of a pipeline's fair rate, and the value of each: the first quarter of each pipeline counts most."""


@dataclass(frozen=True, slots=True)
class Solver:
    """A way to rates, and its name for people; ``share`` finds those of the plan that is made."""

    name: str
    solve: Solve
    share: Share | None = None

    def plan(self, request: PlanRequest) -> TransferPlan:
        """Return a plan for the request. It touches nothing else, and so may run in a thread beside the loop."""
        return plan(request, self.solve, share=self.share)


FILLING = Solver("filling up (max-min fair)", fill)


def best_solver() -> Solver:
    """Return the linear programme's solver if it is installed, else filling up."""
    return Solver("HiGHS", solve, share) if find_spec("highspy") else FILLING


def solve(programme: LinearProgramme) -> list[float]:
    """Return rates with the greatest objective, in bytes per second. One thread, and the same answer every time.

    Raises LooplineError if HiGHS finds none, which would be an error of the programme: each has an optimum.
    """
    if not programme.weights:
        return []
    rows = [(-inf, limit, [(number, float(count)) for number, count in terms]) for limit, terms in _rows(programme)]
    return _not_below_floors(programme, _optimum(programme.weights, programme.floors, [], rows))


def share(programme: LinearProgramme, best: Sequence[float]) -> Sequence[float]:
    """Return rates with the same objective as ``best``, but without needless waits.

    If several rates have the greatest objective, a vertex gives all to one pipeline and nothing to the next. Of the
    equally good ones, this chooses rates that give waiting pipelines the most of their rate by filling up, while the
    others keep half of theirs.
    """
    if len(best) > _SHARED_OUT_UP_TO:
        return best
    fair = fill(programme)
    pairs = list(zip(best, fair, strict=True))
    waiting = {number for number, (rate, even) in enumerate(pairs) if rate < _WORTH[0][0] * even}
    if not waiting:
        return best
    count, steps = len(best), [(number, *step) for number in sorted(waiting) for step in _WORTH]
    kept = [0.0 if number in waiting else 0.5 * min(pair) for number, pair in enumerate(pairs)]
    least = [*map(max, kept, programme.floors), *(0.0 for _ in steps)]
    most = [even if number in waiting else inf for number, even in enumerate(fair)]
    most += [part * fair[number] for number, part, _ in steps]
    rows = [(-inf, limit, [(number, float(often)) for number, often in terms]) for limit, terms in _rows(programme)]
    rows.append((_AS_GOOD * programme.objective(best), inf, list(enumerate(programme.weights))))
    parts = {number: [(number, -1.0)] for number in waiting}
    for place, (number, _, _) in enumerate(steps, count):
        parts[number].append((place, 1.0))
    rows += ((-inf, 0.0, mine) for mine in parts.values())
    gains = [0.0] * count + [worth * max(fair) / fair[number] for number, _, worth in steps]
    return _not_below_floors(programme, _optimum(gains, least, most, rows)[:count])


_Row = tuple[float, float, list[tuple[int, float]]]
"""The least and the most that a sum may be, and its terms: a variable's number and factor."""


def _optimum(
    gains: Sequence[float], least: Sequence[float], most: Sequence[float], rows: Sequence[_Row]
) -> Sequence[float]:
    """Return the variables that have the greatest gain; ``most`` of each is empty if none has a bound."""
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(gains), len(rows)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_ = list(gains), list(least)
    model.col_upper_ = list(most) or [highspy.kHighsInf] * len(gains)
    model.row_lower_ = [low for low, _, _ in rows]
    model.row_upper_ = [high for _, high, _ in rows]
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = list(accumulate((len(terms) for _, _, terms in rows), initial=0))
    matrix.index_ = [number for _, _, terms in rows for number, _ in terms]
    matrix.value_ = [factor for _, _, terms in rows for _, factor in terms]
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.passModel(model)
    highs.run()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise LooplineError("no_plan", f"the linear programme of the transfers has no solution: {status}")
    values: Sequence[float] = highs.getSolution().col_value
    return values


def _not_below_floors(programme: LinearProgramme, found: Sequence[float]) -> list[float]:
    """Return the rates without what rounding leaves below or just above a floor."""
    pairs = zip(found, programme.floors, strict=True)
    return [rate if rate > floor + _ROUNDING else floor for rate, floor in pairs]


def _rows(programme: LinearProgramme) -> list[tuple[float, tuple[Term, ...]]]:
    """Return upper limits and terms: of the links, and of each follower less what it follows."""
    links = [(row.limit, row.terms) for row in programme.constraints]
    return [*links, *((slack, ((follower, 1), (ahead, -1))) for follower, ahead, slack in programme.follows)]
