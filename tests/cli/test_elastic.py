"""The plan of allocations, and their records after a crash."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loopline.elastic.allocator import Allocator
from loopline.elastic.command_engine import CommandEngine, command_line
from loopline.elastic.engine import Wish
from loopline.elastic.plan import Allocation, Limits, Stage, could_serve, plan
from loopline.elastic.records import Records
from loopline.elastic.terms import AllocationTerms, WorkerTerms
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import DemandLine, DemandView
from tests.cli.conftest import Run

NOW = 1000.0
WISH = Wish(1, 60.0)


def demand(tasks: int, **more: Any) -> DemandView:
    return DemandView(slots=tasks, demands=[DemandLine(tasks=tasks, **more)])


def there(*stages: Stage, has_joined: bool = True) -> list[Allocation]:
    return [
        Allocation(f"a{place}", NOW + place, stage, str(place), has_joined=stage is Stage.RUNNING and has_joined)
        for place, stage in enumerate(stages)
    ]


def failed(count: int, at: float = NOW) -> list[Allocation]:
    return [Allocation(f"f{place}", at, Stage.OVER, over_at=at + place) for place in range(count)]


ASKED, QUEUED, RUNNING = Stage.ASKED, Stage.QUEUED, Stage.RUNNING
LIMITS = Limits(most=5, backlog=2, slots=2)


@pytest.mark.parametrize(
    ("tasks", "allocations", "submit", "cancel"),
    [
        (0, [], 0, ()),
        (1, [], 1, ()),
        (3, [], 2, ()),  # of two slots each
        (100, [], 2, ()),  # the backlog
        (100, there(QUEUED), 1, ()),
        (100, there(QUEUED, ASKED), 0, ()),
        (100, there(RUNNING, RUNNING, RUNNING), 2, ()),
        (100, there(RUNNING, RUNNING, RUNNING, RUNNING), 1, ()),  # the most
        (100, there(RUNNING, has_joined=False), 1, ()),  # its worker has not joined yet
        (2, there(RUNNING, has_joined=False), 0, ()),
        (2, there(QUEUED, QUEUED), 0, ("a1",)),  # the latest is cancelled
        (0, there(RUNNING, QUEUED, ASKED), 0, ("a1",)),  # not allocations without an id yet
    ],
)
def test_plan_follows_demand_and_allocations(
    tasks: int, allocations: list[Allocation], submit: int, cancel: tuple[str, ...]
) -> None:
    decided = plan(demand(tasks), allocations, LIMITS, NOW)
    assert (decided.submit, decided.cancel) == (submit, cancel)
    assert decided.why


def test_submissions_pause_after_workers_that_never_joined() -> None:
    limits = Limits(pause_after=3, pause_s=60.0)
    assert plan(demand(9), failed(2), limits, NOW).submit == 4
    assert plan(demand(9), failed(3), limits, NOW + 61).submit == 0
    assert plan(demand(9), failed(3), limits, NOW + 62).submit == 4
    fine = Allocation("fine", NOW, Stage.OVER, has_joined=True, over_at=NOW + 1.5)
    assert plan(demand(9), [*failed(3), fine], limits, NOW + 10).submit == 4


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        (DemandLine(tasks=1, labels=["gpu"]), True),
        (DemandLine(tasks=1, labels=["gpu", "big"]), False),
        (DemandLine(tasks=1, slots=3), False),
        (DemandLine(tasks=1, nodes=2), False),
        (DemandLine(tasks=1, memory_bytes=2 * 10**9), False),
        (DemandLine(tasks=1, expected_s=7200.0), False),
        (DemandLine(tasks=1, os="windows"), False),
        (DemandLine(tasks=1, folder="/data"), False),
        (DemandLine(tasks=1, needs={"fpga": 1}), True),
        (DemandLine(tasks=1, needs={"fpga": 2}), False),
        (DemandLine(tasks=1, needs={"dongle": 1}), False),
        (DemandLine(tasks=1, needs={"computer": 1}), True),
        (DemandLine(tasks=1, needs={"gpu": 2}), True),
        (DemandLine(tasks=1, needs={"gpu": 3}), False),
    ],
)
def test_demand_that_its_workers_cannot_serve_starts_no_allocation(line: DemandLine, fits: bool) -> None:
    limits = Limits(
        slots=2, resources={"gpu": 2, "fpga": 1}, labels=("gpu",), memory_bytes=10**9, time_limit_s=3600.0
    )
    assert could_serve(line, limits) == fits
    assert plan(DemandView(slots=1, demands=[line]), [], limits, NOW).submit == fits


def test_as_many_workers_are_wanted_as_have_the_gpus() -> None:
    view = DemandView(slots=4, demands=[DemandLine(tasks=4, needs={"gpu": 1})])
    assert plan(view, [], Limits(slots=8), NOW).submit == 0, "these workers have none"
    assert plan(view, [], Limits(slots=8, resources={"gpu": 1}), NOW).submit == 4
    assert plan(view, [], Limits(slots=8, resources={"gpu": 4}), NOW).submit == 1


def test_tasks_for_computers_that_are_being_woken_want_no_worker() -> None:
    view = DemandView(slots=1, demands=[DemandLine(tasks=4, coming=3, needs={"gpu": 1})])
    assert plan(view, [], Limits(slots=8, resources={"gpu": 1}), NOW).submit == 1


def test_each_exclusive_task_wants_a_worker() -> None:
    view = DemandView(slots=4, demands=[DemandLine(tasks=3, needs={"computer": 1})])
    assert plan(view, [], Limits(slots=8), NOW).submit == 3


def test_gres_is_asked_for_and_offered_by_the_worker() -> None:
    terms = AllocationTerms(gpus=1, gres=("fpga=2", "dongle"))
    assert terms.limits(()).resources == {"fpga": 2, "dongle": 1, "gpu": 1}
    assert terms.wish().resources == {"fpga": 2, "dongle": 1}
    line = shlex.join(WorkerTerms().command("NAME", "http://master", terms))
    assert "--resource fpga=2 --resource dongle=1" in line


def test_long_tasks_that_wait_at_busy_workers_count() -> None:
    assert plan(demand(0, waiting=4, expected_s=60.0), [], Limits(), NOW).submit == 4
    assert plan(demand(0, waiting=4, expected_s=0.1), [], Limits(), NOW).submit == 0


# --- records and the allocator --------------------------------------------------------------------------------


@dataclass
class Master:
    """A fake master with this demand and these workers."""

    tasks: int
    joined: list[Any] = field(default_factory=list)

    async def demand(self) -> DemandView:
        return demand(self.tasks)

    async def workers(self) -> Any:
        for one in self.joined:
            yield one


@dataclass
class Queue:
    """A fake engine; ``dies``: it crashes after a submission, before its id is recorded."""

    ids: dict[str, str] = field(default_factory=dict)
    dies: bool = False

    def submit(self, name: str, command: Sequence[str], wish: Wish) -> str:
        self.ids[name] = str(len(self.ids) + 1)
        if self.dies:
            raise KeyboardInterrupt
        return self.ids[name]

    def stage(self, allocation: Allocation) -> Stage:
        return QUEUED if self.ids.get(allocation.name) == allocation.id else Stage.OVER

    def find(self, name: str) -> str | None:
        return self.ids.get(name, "")

    def cancel(self, allocation: Allocation) -> None:
        del self.ids[allocation.name]


def allocator(master: Master, engine: Any, records: Records, limits: Limits = LIMITS) -> Allocator:
    client: Any = master
    return Allocator(client, engine, records, limits, WISH, prefix="t", command_of=lambda name: ["true", name])


async def test_crash_during_a_submission_orphans_no_allocation(tmp_path: Path) -> None:
    engine, records = Queue(dies=True), Records(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        await allocator(Master(9), engine, records).turn()
    records.close()
    engine.dies, again = False, Records(tmp_path)
    assert [(one.stage, one.id) for one in again.allocations.values()] == [(ASKED, "")]
    await allocator(Master(9), engine, again).turn()
    known = {one.name: one.id for one in again.allocations.values() if not one.is_over}
    assert known == engine.ids
    assert len(known) == LIMITS.backlog
    await allocator(Master(0), engine, again).turn()
    assert not engine.ids
    again.close()


def test_second_allocator_on_a_folder_is_refused(tmp_path: Path) -> None:
    first = Records(tmp_path)
    with pytest.raises(LooplineError, match="another `loopline elastic`"):
        Records(tmp_path)
    first.close()
    Records(tmp_path).close()


def test_command_is_found_after_a_restart_and_ended(tmp_path: Path) -> None:
    engine = CommandEngine(tmp_path, ["/bin/sh", "-c", "{worker}"])
    one = Allocation("t-1", NOW, RUNNING, engine.submit("t-1", ["sh", "-c", "sleep 600; true", "t-1"], WISH))
    while not (found := engine.find("t-1")):
        time.sleep(0.01)
    assert (found, engine.find("t-2")) == (one.id, "")
    later = CommandEngine(tmp_path, [])
    assert later.stage(one) is RUNNING
    later.cancel(one)
    os.waitpid(int(one.id), 0)
    assert later.stage(one) is Stage.OVER


def test_worker_command_is_appended_or_inserted_quoted() -> None:
    assert command_line(["docker", "run", "image"], ["a", "b c"]) == ["docker", "run", "image", "a", "b c"]
    assert command_line(["ssh", "pc7", "{worker}"], ["a", "b c"]) == ["ssh", "pc7", "a 'b c'"]


def test_wrong_usage_is_explained(run: Run) -> None:
    assert "must be 1 or more" in run("elastic", "slurm", "--max", "0").err
    assert "expected NAME or NAME=UNITS" in run("elastic", "slurm", "--gres", "=1").err
    assert "expected NAME=VALUE" in run("elastic", "slurm", "--option", "qos").err
    for gpus in ("gpu=1", "gpu:1", "computer"):
        assert "--gres takes NAME=N" in run("elastic", "slurm", "--gres", gpus).err
    assert "--gres is for slurm" in run("elastic", "pbs", "--gres", "fpga=1").err
    assert "slurm needs no command" in run("elastic", "slurm", "--", "ssh").err
