"""Total completion time of tasks that need files (Takahashi et al., sections 2 and 4): rounds, and a live master."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from loopline_master.core.events import SchedulerSettings
from loopline_shared.model import Order
from loopline_simulator.fast.trial import settings
from loopline_simulator.papers.data_transfer.assignment_trial import SEARCHES
from loopline_simulator.papers.data_transfer.data_grid import (
    DataGrid,
    DataTask,
    LiveWorld,
    RoundsWorld,
    Trigger,
    file_name,
)
from loopline_simulator.papers.data_transfer.transfer_scenario import TransferScenario
from loopline_simulator.streams import stream

LIVE = {
    "live": ("round-robin", 1.0),
    "live, 60 s ahead": ("round-robin", 60.0),
    "live, turnaround": ("turnaround", 1.0),
}
"""Ways without rounds, in which each idle worker asks at once: the policy, and ``prefetch_s`` (by default 1)."""
IN_ROUNDS = ("at-random", "local-first", "annealing", "genetic")
TRIGGERS = {"1/4 idle": Trigger(idle=-4), "10 s": Trigger(idle=10**9, after_s=10.0)}
_SPEEDS = (1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class RoundsCase:
    """Everything that a run depends on."""

    seed: int
    way: str
    trigger: str  # empty for a live master
    ratio: float  # transfer time of a task's files over its computer's link alone, divided by its computing time
    scenario: TransferScenario
    tasks: int  # for each host
    plans: int  # that a search may make in each round

    def grid(self) -> DataGrid:
        situation, chance = self.scenario.draw(self.seed), stream(self.seed, "tasks")
        names = {title: file_name(title) for title in situation.sizes}
        sizes = {names[title]: size for title, size in situation.sizes.items()}
        hosts = [node for node in situation.nodes if node.name.startswith("host")]
        speeds = {node.name: float(chance.choice(_SPEEDS)) for node in hosts}
        titles, wants = sorted(situation.sizes), min(self.scenario.wants, self.scenario.files)
        alone_s = wants * fmean(sizes.values()) * fmean(1 / node.down for node in hosts)
        work = alone_s / self.ratio * fmean(_SPEEDS)
        tasks = tuple(
            DataTask(
                tuple(names[str(title)] for title in chance.choice(titles, wants, replace=False)),
                work * float(chance.uniform(0.5, 1.5)),
            )
            for _ in range(self.tasks * len(hosts))
        )
        holders = {names[title]: hosts for title, hosts in situation.holders.items()}
        return DataGrid(situation.nodes, sizes, holders, tasks, speeds)


@dataclass(frozen=True, slots=True)
class RoundsAnswer:
    case: RoundsCase
    makespan_s: float  # until the last task has ended
    mean_s: float  # of all tasks, from the beginning until each has ended
    rounds: int  # 0: a live master
    plans: int  # made for them


def run(case: RoundsCase) -> RoundsAnswer:
    """Run the case. Raises RuntimeError if a task never ends."""
    grid = case.grid()
    world: RoundsWorld | LiveWorld
    if case.way in LIVE:
        world = LiveWorld(grid, _settings(*LIVE[case.way]))
        rounds = plans = 0
        world.run()
    else:
        trigger = TRIGGERS[case.trigger]
        if trigger.idle < 0:
            trigger = replace(trigger, idle=max(1, len(grid.speeds) // -trigger.idle))
        world = RoundsWorld(grid, SEARCHES[case.way], trigger, case.seed, case.plans)
        world.run()
        rounds, plans = world.rounds, world.plans
    if len(world.ended) < len(grid.tasks):
        raise RuntimeError(f"{len(grid.tasks) - len(world.ended)} tasks never end: {case}")
    ends = list(world.ended.values())
    return RoundsAnswer(case, max(ends), fmean(ends), rounds, plans)


def _settings(policy: str, prefetch_s: float) -> SchedulerSettings:
    return replace(settings(policy, Order.NONE, 1), peers=True, prefetch_s=prefetch_s)


def cases(
    scenario: TransferScenario, ratios: Sequence[float], tasks: int, plans: int, seeds: Sequence[int]
) -> list[RoundsCase]:
    """Return every way with each of its triggers, for each ratio and seed."""
    ways = [(way, "") for way in LIVE] + [(way, trigger) for way in IN_ROUNDS for trigger in TRIGGERS]
    return [
        RoundsCase(seed, way, trigger, ratio, scenario, tasks=tasks, plans=plans)
        for seed in seeds
        for ratio in dict.fromkeys(ratios)
        for way, trigger in ways
    ]
