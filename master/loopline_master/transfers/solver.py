"""The best rates, by HiGHS; fair ones by filling up where the extra ``loopline[planner]`` is not installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate

from loopline_master.core.transfers.filling import fill
from loopline_master.core.transfers.pipeline import PlanRequest, TransferPlan
from loopline_master.core.transfers.programme import LinearProgramme, Solve, Term
from loopline_master.core.transfers.transfer_planner import plan
from loopline_shared.errors import LooplineError

_ROUNDING = 1e-6
"""Bytes per second: as far as that, HiGHS may be off its bounds, on either side."""


@dataclass(frozen=True, slots=True)
class Solver:
    """A way to rates, and its name for people."""

    name: str
    solve: Solve

    def plan(self, request: PlanRequest) -> TransferPlan:
        """Return a plan for the request. It touches nothing else, and so may run in a thread beside the loop."""
        return plan(request, self.solve)


FILLING = Solver("filling up (max-min fair)", fill)


def best_solver() -> Solver:
    """Return the linear programme's solver if it is installed, else filling up."""
    return Solver(f"HiGHS {version('highspy')}", solve) if find_spec("highspy") else FILLING


def solve(programme: LinearProgramme) -> list[float]:
    """Return rates with the greatest objective, in bytes per second. One thread, and the same answer every time.

    Raises LooplineError if HiGHS finds none, which would be an error of the programme: each has an optimum.
    """
    import highspy

    if not programme.weights:
        return []
    model, rows = highspy.HighsLp(), _rows(programme)
    model.num_col_, model.num_row_ = len(programme.weights), len(rows)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_ = list(programme.weights), list(programme.floors)
    model.col_upper_ = [highspy.kHighsInf] * len(programme.weights)
    model.row_lower_ = [-highspy.kHighsInf] * len(rows)
    model.row_upper_ = [limit for limit, _ in rows]
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = list(accumulate((len(terms) for _, terms in rows), initial=0))
    matrix.index_ = [number for _, terms in rows for number, _ in terms]
    matrix.value_ = [float(count) for _, terms in rows for _, count in terms]
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.passModel(model)
    highs.run()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise LooplineError("no_plan", f"the linear programme of the transfers has no solution: {status}")
    found = zip(highs.getSolution().col_value, programme.floors, strict=True)
    return [rate if rate > floor + _ROUNDING else floor for rate, floor in found]


def _rows(programme: LinearProgramme) -> list[tuple[float, tuple[Term, ...]]]:
    """Return upper limits and terms: of the links, and of each follower less what it follows."""
    links = [(row.limit, row.terms) for row in programme.constraints]
    return [*links, *((0.0, ((follower, 1), (ahead, -1))) for follower, ahead in programme.follows)]
