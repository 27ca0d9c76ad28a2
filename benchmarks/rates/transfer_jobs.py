"""Tasks with several large files that lie on several workers: ``python -m benchmarks.rates.transfer_jobs``.

Each worker of a lab with two switches and a narrow cable between (benchmarks/harness/lab.py, as root) has one file,
and is to run one task that needs two. How long until the last task has its files: from the master alone, from random
peers in the order of the tasks, and as the master plans it. Beside it is the same round in the simulator, whose times
are those of the links alone.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.harness import tables
from benchmarks.harness.lab import Lab, obstacle
from benchmarks.harness.lab_grid import Case, LabGrid, make
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand
from loopline_master.transfers.solver import solve
from loopline_simulator.papers.data_transfer.assignment import Assessment, AssignmentRequest, local_first
from loopline_simulator.papers.data_transfer.fluid_world import FluidWorld
from loopline_simulator.papers.data_transfer.strategies import PATIENCE_S, STRATEGIES
from loopline_simulator.papers.data_transfer.transfer_scenario import MASTER, Arrival, Situation

_MBIT = 1e6 / 8
WAYS = {
    "master-only": Case("from the master alone", peers=False),
    "random-peers": Case("from random peers, tasks in turn", knows="written", blind=True),
    "planned": Case("planned", knows="written"),
}
"""The simulator's strategies, and their live counterparts."""


@dataclass(frozen=True, slots=True)
class Round:
    """One way, live and simulated; seconds until the last task had its files, and of the mean task."""

    way: str
    live_last_s: float
    live_mean_s: float
    simulated_last_s: float
    simulated_mean_s: float
    copies: float  # of one file that left the master


def wanted(workers: int, seed: int) -> list[list[int]]:
    """Return two files for each task, every file as often as any other."""
    draw = random.Random(seed)
    first, second = (draw.sample(range(workers), workers) for _ in range(2))
    return [[one, other if other != one else (one + 1) % workers] for one, other in zip(first, second, strict=True)]


def simulated(lab: Lab, size_bytes: int, wants: Sequence[Sequence[int]], strategy: str) -> tuple[float, float]:
    """Return when the last and the mean task of the round has its files, if nothing but links takes time."""
    nodes = [NetworkNode("core", None, is_switch=True)]
    nodes += [NetworkNode(switch, "core", *2 * (lab.between * _MBIT,), is_switch=True) for switch in "AB"]
    places = {MASTER: "A"} | {name: lab.switch(number) for number, name in enumerate(lab.names)}
    nodes += [NetworkNode(name, switch, *2 * (lab.edge * _MBIT,)) for name, switch in places.items()]
    files = [str(number) for number in range(len(wants))]
    holders: dict[str, tuple[str, ...]] = {file: (MASTER, name) for file, name in zip(files, lab.names, strict=True)}
    tasks = tuple(tuple(map(str, each)) for each in wants)
    assessment = Assessment(AssignmentRequest(Network(nodes), holders, tasks, tuple(lab.names), 1e9), solve)
    order = local_first(assessment) if strategy == "planned" else range(len(tasks))
    lacking = {name: assessment.lacks(task, name) for name, task in zip(lab.names, order, strict=True)}
    arrivals = tuple(Arrival(0.0, Demand(file, name)) for name, all_of in lacking.items() for file in all_of)
    world = FluidWorld(
        Situation(tuple(nodes), dict.fromkeys(files, float(size_bytes)), holders, arrivals, ()),
        STRATEGIES[strategy](1),
        PATIENCE_S,
    )
    world.run()
    ended = [max(world.took[file, name] for file in all_of) for name, all_of in lacking.items()]
    return max(ended), fmean(ended)


def measure(strategy: str, lab: Lab, mib: int, wants: Sequence[Sequence[int]], keep: Path | None) -> Round:
    """Run the round once in a grid, and once in the simulator."""
    folder, case = Path(tempfile.mkdtemp(prefix="lab")), WAYS[strategy]
    try:
        files = [folder / f"file-{number}.bin" for number in range(lab.workers)]
        for file in files:
            make(file, mib)
        grid = LabGrid(lab, folder, case)
        with lab.built(), grid.running():
            found = grid.run_user("benchmarks.light.lab_round", grid.stamps, lab.workers, json.dumps(wants), *files)
            sent = lab.sent_bytes()["master"] / mib / 2**20 - lab.workers  # each came from it once before
    finally:
        if keep:
            for log in folder.glob("*.log"):
                shutil.copy(log, keep / f"{strategy}-{log.name.removeprefix(lab.prefix)}")
        shutil.rmtree(folder, ignore_errors=True)
    begin, *ends = map(float, found)
    took = [at - begin for at in ends]
    return Round(case.name, max(took), fmean(took), *simulated(lab, mib * 2**20, wants, strategy), sent)


def main() -> None:
    asking = tables.parser(__doc__)
    asking.add_argument("--workers", type=int, default=8)
    asking.add_argument(
        "--mib", type=int, default=16, help="size of each file; at least 16, or the master has them alone"
    )
    asking.add_argument("--edge", type=float, default=100.0, help="Mbit/s of each host's link")
    asking.add_argument("--between", type=float, default=25.0, help="Mbit/s between the switches")
    asking.add_argument("--seed", type=int, default=1)
    asking.add_argument("--logs", type=Path, help="a folder for the logs")
    options = asking.parse_args()
    if options.full:
        options.workers, options.mib = 16, 32
    if reason := obstacle():
        print(f"Not run: {reason}.")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the lab is taken down"))
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    wants, found = wanted(options.workers, options.seed), []
    for strategy in WAYS:
        tables.progress(WAYS[strategy].name)
        lab = Lab(options.workers, options.edge, options.between, mixed=True)
        found.append(one := measure(strategy, lab, options.mib, wants, options.logs))
        tables.progress(f"{one.live_last_s:.1f} s; simulated {one.simulated_last_s:.1f} s")
    head = ["way", "live: last s", "mean s", "simulated: last s", "mean s", "copies from the master"]
    rows = [[one.way, *(f"{value:.1f}" for value in list(asdict(one).values())[1:])] for one in found]
    title = (
        f"{options.workers} tasks on {options.workers} workers, two files of {options.mib} MiB each, "
        f"{options.edge:g} Mbit/s at the edge, {options.between:g} between the switches\n\n"
    )
    tables.answer([asdict(one) for one in found], title + tables.table(head, rows), options.json)


if __name__ == "__main__":
    main()
