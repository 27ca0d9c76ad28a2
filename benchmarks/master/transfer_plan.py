"""Time that a plan of transfers takes, and how good it is.

    python benchmarks/master/transfer_plan.py [--hosts 200] [--files 50] [--switches 20] [--wants 1 3 10] [--seeds 10]

Networks and files are drawn as ``loopline simulate transfer`` draws them; all demands come at once. Times are CPU
milliseconds of this process, for the whole plan and for the solver in it. *Of the bound*: the total throughput of
receivers, relative to an upper bound. Each plan is compared with one without the linear programme (filling up), and
one without re-planning.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import table
from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.pipeline import PlanRequest
from loopline_master.core.wings.transfers.programme import LinearProgramme, Share, Solve
from loopline_master.core.wings.transfers.transfer_planner import plan
from loopline_master.transfers.solver import share, solve
from loopline_simulator.papers.data_transfer.bounds import most_throughput
from loopline_simulator.papers.data_transfer.transfer_scenario import TransferScenario

WAYS: dict[str, tuple[Solve, int, Share | None]] = {
    "linear programme": (solve, 1, None),
    "and shared out": (solve, 1, share),
    "filling up": (fill, 1, None),
    "not re-planned": (solve, 0, None),
}


@dataclass(frozen=True, slots=True)
class PlanCost:
    wants: int
    way: str
    plan_ms: float  # mean
    longest_ms: float
    solver_ms: float  # mean
    objective: float  # over the bound, mean


def costs(scenario: TransferScenario, seeds: int) -> Iterator[PlanCost]:
    """Yield the figures of each way to a plan."""
    requests = [_request(scenario, seed) for seed in range(seeds)]
    bounds = [
        most_throughput(each.network, dict(each.holders), [(one.file, one.host) for one in each.demands])
        for each in requests
    ]
    for way, (solver, rounds, even) in WAYS.items():
        inside: list[float] = []

        def timed(programme: LinearProgramme, solver: Solve = solver, inside: list[float] = inside) -> list[float]:
            began = time.process_time()
            found = list(solver(programme))
            inside.append(time.process_time() - began)
            return found

        took, shares = [], []
        plan(requests[0], timed, rounds, even)  # loads the solver
        inside.clear()
        for request, bound in zip(requests, bounds, strict=True):
            began = time.process_time()
            found = plan(request, timed, rounds, even)
            took.append(1e3 * (time.process_time() - began))
            shares.append(found.objective / bound)
        yield PlanCost(scenario.wants, way, fmean(took), max(took), 1e3 * sum(inside) / seeds, fmean(shares))


def _request(scenario: TransferScenario, seed: int) -> PlanRequest:
    situation = scenario.draw(seed)
    demands = tuple(arrival.demand for arrival in situation.arrivals)
    return PlanRequest(Network(situation.nodes), situation.holders, demands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("hosts", 200), ("files", 50), ("switches", 20), ("seeds", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--wants", type=int, nargs="+", default=[1, 3, 10], help="files that each host wants")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    network = {"hosts": chosen.hosts, "files": chosen.files, "switches": chosen.switches}
    found = [cost for wants in chosen.wants for cost in costs(TransferScenario(wants=wants, **network), chosen.seeds)]
    if chosen.json:
        print(json.dumps([asdict(cost) for cost in found], indent=2))
        return
    head = ("files a host", "plan", "ms", "longest", "solver ms", "of the bound")
    print(table(head, [_row(cost) for cost in found]))


def _row(cost: PlanCost) -> tuple[str, ...]:
    times = (f"{each:.1f}" for each in (cost.plan_ms, cost.longest_ms, cost.solver_ms))
    return (str(cost.wants), cost.way, *times, f"{cost.objective:.0%}")


if __name__ == "__main__":
    main()
