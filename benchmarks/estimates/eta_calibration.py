"""Calibration of ETAs: jobs of the simulator under each policy, with ETAs at several moments, compared with their
ends. The moments are the first finished task, and a quarter, half and three quarters of the tasks.

Computers and their owners are those of the no-passing paper; jobs arrive at random (Poisson) and differ in size by a
factor of ten. *known*: their sizes were given. *unknown*: the master learns the duration of tasks as they finish. The
yardstick is the promise of ETAs: half of the jobs complete before their p50, nine in ten before their p90.

    python benchmarks/estimates/eta_calibration.py [--full] [--seeds N] [--first-seed N] [--policy NAME ...] [--json]
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import answer, parser, progress, table
from loopline_master.core.estimates.eta import Forecast, outlook
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Job
from loopline_master.core.policies import REGISTRY
from loopline_master.forecaster import MOMENTS, Calibration, EtaOutcome, moment_of, situation_of
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptId, Order
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import size_at
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.trial import settings
from loopline_simulator.fast.workload import Arrivals, Sizes, Workload
from loopline_simulator.fast.world import Arrival, FastWorld, Host

PARK = Park(count=24)
LOAD = 0.7
DEFAULT = "round-robin"
_LEAST, _MOST = 0.80, 0.97
"""Limits of the share of cases in which a p90 should hold."""


class BlindWorld(FastWorld):
    """A world whose machines know the sizes of tasks, while its master does not."""

    def __init__(self, *arguments: object, sizes: list[JobSpec], **more: object) -> None:
        self._sizes = sizes
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def _end_of(self, host: Host, attempt: AttemptId) -> float:
        size = size_at(self._sizes[attempt.job - 1], attempt.task) or 0.0
        return host.speed.end_of(self.kernel.now, size)


class Judge:
    """Shown every step's effects, it asks for forecasts at each job's moments, and judges them as it completes."""

    def __init__(self) -> None:
        self.world: FastWorld | None = None
        self.held: dict[int, list[tuple[bool, bool]]] = defaultdict(list)  # by moment
        self.outcomes: deque[EtaOutcome] = deque(maxlen=800)  # the record that a master uses
        self.calibration = Calibration()
        self.is_fresh = True
        self.errors: dict[int, list[float]] = defaultdict(list)  # of p50, as a share of the time that was left
        self._open: dict[int, dict[int, tuple[float, Forecast, Forecast, bool]]] = defaultdict(dict)

    def watch(self, world: FastWorld) -> None:
        self.world = world
        self._open.clear()
        world.run()

    def __call__(self, effects: Effects) -> None:
        if self.world is None:
            return
        due = [(job.id, moment) for job in effects.jobs.values() if (moment := self._moment(job)) is not None]
        found = outlook(self.world.scheduler.state) if due else {}
        for job, moment in due:
            if isinstance(one := found.get(job), Forecast):
                situation = situation_of(self.world.scheduler.state, self.world.scheduler.state.jobs[job], moment)
                shown = (Calibration() if self.is_fresh else self.calibration).applied(situation, one)
                judged = 0 if self.is_fresh else sum(outcome.moment == moment for outcome in self.outcomes)
                self._open[job][moment] = (effects.grid.now, one, shown, situation.is_shown(judged))
        for job in effects.completed:
            self._judge(effects.grid.now, self._open.pop(job, {}))

    def _judge(self, now: float, said: dict[int, tuple[float, Forecast, Forecast, bool]]) -> None:
        for moment, (at, model, shown, is_shown) in said.items():
            took = now - at
            self.outcomes.append(EtaOutcome(moment, model.p50_s, model.p90_s, took))
            if not is_shown:
                continue
            self.held[moment].append((took <= shown.p50_s, took <= shown.p90_s))
            self.errors[moment].append(abs(shown.p50_s - took) / max(took, 1.0))
        self.calibration = Calibration(self.outcomes)

    def _moment(self, job: Job) -> int | None:
        moment = moment_of(job.succeeded + job.failed, job.task_count) if job.is_live else None
        return None if moment is None or any(known >= moment for known in self._open[job.id]) else moment

    def restart_statistics(self) -> None:
        """Restart the statistics from here."""
        self.held.clear()
        self.errors.clear()
        self.is_fresh = False


def judged(judge: Judge, policy: str, order: Order, *, blind: bool, seeds: Iterable[int]) -> Judge:
    chosen = replace(settings(policy, order), max_replicas=2)
    workload = Workload(jobs=40, tasks=60, smallest=50.0, largest=350.0, sizes=Sizes.LOGNORMAL, decades=1.0,
                        arrivals=Arrivals.POISSON)  # fmt: skip
    workload = replace(workload, interval=workload.interval_for(LOAD, PARK.capacity))
    for seed in seeds:
        arrivals = workload.of(seed)
        judge.world = None
        if blind:
            unsized = [Arrival(one.at, _unsized(one.spec)) for one in arrivals]
            specs = [one.spec for one in arrivals]
            judge.watch(BlindWorld(chosen, PARK.hosts(seed), unsized, observe=judge, sizes=specs))
        else:
            judge.watch(FastWorld(chosen, PARK.hosts(seed), arrivals, observe=judge))
    return judge


def _unsized(spec: JobSpec) -> JobSpec:
    return JobSpec(command=["simulated"], parameters={"i": Range(range=[1, spec.task_count])})


def rows(policies: list[str], seeds: int, first: int) -> Iterator[dict[str, Any]]:
    for policy in policies:
        for order in (Order.HOLD, Order.NONE):
            for blind in (False, True):
                progress(f"{policy}, {order.value}, sizes {'unknown' if blind else 'known'} ...")
                fresh = judged(Judge(), policy, order, blind=blind, seeds=range(first, first + seeds))
                yield from _rows(policy, order, blind, fresh)
                known = judged(Judge(), policy, order, blind=blind, seeds=range(first, first + 2))
                known.restart_statistics()
                judged(known, policy, order, blind=blind, seeds=range(first + 2, first + 2 + seeds))
                yield from _rows(policy, order, blind, known)


def _rows(policy: str, order: Order, blind: bool, judge: Judge) -> Iterator[dict[str, Any]]:
    for moment in MOMENTS:
        pairs = judge.held[moment]
        halves, most = (fmean(pair[which] for pair in pairs) if pairs else 0.0 for which in (0, 1))
        yield {
            "policy": policy,
            "order": order.value,
            "sizes": "unknown" if blind else "known",
            "record": "none" if judge.is_fresh else "80 jobs",
            "moment": "first" if moment == 0 else f"{moment} %",
            "etas": len(pairs),
            "p50_held": halves,
            "p90_held": most,
            "p50_error": median(judge.errors[moment]) if pairs else 0.0,
        }


def show(found: list[dict[str, Any]]) -> str:
    head = ["policy", "order", "sizes", "record", "moment", "ETAs", "p50 held", "p90 held", "error of p50 (median)"]
    lines = [[f"{cell:.0%}" if isinstance(cell, float) else cell for cell in row.values()] for row in found]
    shares = [row["p90_held"] for row in found if row["etas"]]
    within = sum(_LEAST <= share <= _MOST for share in shares)
    said = f"of {len(shares)} p90 that are shown, {within} held in {_LEAST:.0%} to {_MOST:.0%} of cases"
    return f"{table(head, [['what they promise', '', '', '', '', '', '50%', '90%', ''], *lines])}\n\n{said}"


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--seeds", type=int, help="1; in the full form 5")
    asking.add_argument("--first-seed", type=int, default=1)
    asking.add_argument("--policy", nargs="*", help="round-robin; in the full form, all")
    options = asking.parse_args()
    policies = options.policy or (sorted(REGISTRY) if options.full else [DEFAULT])
    found = list(rows(policies, options.seeds or (5 if options.full else 1), options.first_seed))
    answer(found, show(found), options.json)


if __name__ == "__main__":
    main()
