"""Accuracy of the predicted size of a program's next run, by kind of program.

    python benchmarks/estimates/prediction.py [--seeds 200] [--runs 60] [--json]

Histories are drawn from a seed, run by run; each run is predicted from those before, as at a submission.
Two naive yardsticks are the mean of all earlier runs, and the last run. Relative errors are
|predicted - actual| / actual; *within* is the share of runs between the predicted p10 and p90 (at best 80 %).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_master.core.estimates import program_history
from loopline_master.core.kernel.entities import Program
from loopline_master.core.kernel.runs import Observation

Predict = Callable[[Program, list[float]], float]
_NOISE = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    predictor: str
    median: float
    p90: float
    within: float | None = None  # only the job database says how far it may be off


def constant(draw: random.Random, runs: int) -> list[float]:
    return [100.0 * draw.lognormvariate(0, _NOISE) for _ in range(runs)]


def drifting(draw: random.Random, runs: int) -> list[float]:
    """Each run a twentieth more than the one before."""
    return [10.0 * 1.05**run * draw.lognormvariate(0, _NOISE) for run in range(runs)]


def bimodal(draw: random.Random, runs: int) -> list[float]:
    """Three in ten runs are eight times as long."""
    return [(800.0 if draw.random() < 0.3 else 100.0) * draw.lognormvariate(0, _NOISE) for _ in range(runs)]


def changed(draw: random.Random, runs: int) -> list[float]:
    """Half-way, the program takes five times as long from then on."""
    return [(100.0 if run < runs / 2 else 500.0) * draw.lognormvariate(0, _NOISE) for run in range(runs)]


def new(draw: random.Random, runs: int) -> list[float]:
    """Return a program's first runs only; each user's program scatters as it does."""
    spread = draw.choice([0.05, 0.3, 0.8])
    return [100.0 * draw.lognormvariate(0, spread) for _ in range(6)]


KINDS = {"constant": constant, "drifting": drifting, "bimodal": bimodal, "changed": changed, "new": new}


def job_database(program: Program, works: list[float]) -> float:
    prediction = program_history.predict(program)
    assert prediction is not None
    return prediction.work


PREDICTORS: dict[str, Predict] = {
    "job database": job_database,
    "mean of all": lambda program, works: statistics.fmean(works),
    "last run": lambda program, works: works[-1],
}


def rows(seeds: int, runs: int) -> Iterable[Row]:
    for kind, history in KINDS.items():
        errors: dict[str, list[float]] = {name: [] for name in PREDICTORS}
        within: list[bool] = []
        for seed in range(seeds):
            _one(history(random.Random(f"{kind} {seed}"), runs), errors, within)
        for name, found in errors.items():
            told = statistics.fmean(within) if name == "job database" else None
            yield Row(kind, name, statistics.median(found), program_history.quantile(sorted(found), 0.9), told)


def _one(history: list[float], errors: dict[str, list[float]], within: list[bool]) -> None:
    program = Program("ann", "it", "here", 0.0, 0.0)
    for place, work in enumerate(history):
        if place:
            before = history[:place]
            for name, predict in PREDICTORS.items():
                errors[name].append(abs(predict(program, before) - work) / work)
            prediction = program_history.predict(program)
            assert prediction is not None
            within.append(prediction.p10 <= work <= prediction.p90)
        program_history.learn(
            program, Observation(float(place), "pc", work, wall_s=work, cpu_s=work, system_s=0.0, peak_memory_bytes=0)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="histories of each kind")
    parser.add_argument("--runs", type=int, default=60, help="runs of each history")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = list(rows(chosen.seeds, chosen.runs))
    if chosen.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    print(f"{'program':<10} {'predicted by':<14} {'median':>8} {'p90':>8} {'within':>8}")
    for row in found:
        told = "" if row.within is None else f"{row.within:8.0%}"
        print(f"{row.kind:<10} {row.predictor:<14} {row.median:8.1%} {row.p90:8.0%} {told}")


if __name__ == "__main__":
    main()
