"""The term for data in the policies' costs, part by part: where the files are, on their way, or nowhere."""

from __future__ import annotations

import pytest

from loopline_master.core.events import JobSubmitted, NetworkChanged
from loopline_master.core.explain.explain_job import explain_job, explain_task, files_of_job
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.wings.transfers.data_delay import data_delay, near
from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_shared.model import Order, TaskId
from loopline_shared.protocol.transfers import FaultKind, PeerFault
from loopline_shared.spec import JobSpec
from tests.transfers.carrying_room import MIB, SIZE, A, B, CarryingRoom

C = "c" * 64
LINKS = (
    NetworkNode("core", None, is_switch=True),
    *(NetworkNode(name, "core", 4 * MIB, 4 * MIB) for name in ("ant", "bee", "cat", "master")),
)


def spec_with(*files: str, **more: object) -> JobSpec:
    inputs = {f"in/{n}": f"sha256:{file}" for n, file in enumerate(files)}
    return JobSpec(command=["work"], inputs=inputs, **more)  # type: ignore[arg-type]


def delays(room: CarryingRoom, *files: str) -> dict[str, float]:
    room.step(JobSubmitted("user", spec_with(*files, requires={"labels": ["nobody"]})))
    job = list(room.scheduler.state.jobs.values())[-1]
    return {name: data_delay(room.scheduler.state, job, 1, name) for name in ("ant", "bee", "cat")}


def test_delay_is_zero_for_a_local_file_else_its_way_over_the_link() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(LINKS))
    for name, has in {"ant": [A, B], "bee": [A], "cat": []}.items():
        room.tell(name, has=has)
    assert delays(room, A) == {"ant": 0, "bee": 0, "cat": SIZE / (4 * MIB)}
    assert delays(room, A, B) == {"ant": 0, "bee": SIZE / (4 * MIB), "cat": 2 * SIZE / (4 * MIB)}


def test_file_without_holders_makes_no_difference() -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    assert delays(room, C) == {"ant": 0, "bee": 0, "cat": 0}


def test_file_on_its_way_costs_its_remaining_bytes() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(LINKS))
    room.tell("bee", wants=[A])
    room.settle()
    room.tell("bee", wants={A: SIZE // 2})
    rate = room.transfer("bee").rate  # type: ignore[union-attr]
    assert delays(room, A)["bee"] == pytest.approx(SIZE / 2 / rate)
    assert delays(room, A)["cat"] == SIZE / (4 * MIB)


def test_holders_are_nearer_than_fetching_workers() -> None:
    room = CarryingRoom()
    room.tell("ant", wants=[A])
    room.tell("cat", has=[A])
    room.step(JobSubmitted("user", spec_with(A)))
    (job,) = room.scheduler.state.jobs.values()
    assert near(room.scheduler.state, job, 1) == ["cat", "ant"]


def test_explain_names_the_source_of_a_file_and_the_reason() -> None:
    room = CarryingRoom(lease_s=100.0)
    room.step(NetworkChanged(LINKS))
    room.tell("ant", has=[])
    placed_on = placed(room, A)
    attempt = next(iter(room.scheduler.state.attempts))
    assert placed_on == "ant"
    room.tell("ant", wants=[A], holding=[attempt])
    assert "from the master until it is planned" in told(room, "ant")
    room.settle()
    room.tell("ant", wants={A: SIZE // 4}, holding=[attempt])
    said = told(room, "ant")
    assert f"file {A[:12]} comes to ant from the master, as no worker has it: 25% of 67 MB" in said
    assert "at 0.0 MB/s (planned 4.2), 12 s left" in said
    task = explain_task(room.scheduler, TaskId(1, 1))
    job = explain_job(room.scheduler, 1)
    assert task
    assert job
    for explained in (task, job):
        assert "comes to ant from the master" in explained.sentence
        assert [reason.code for reason in explained.reasons] == ["running", "transfer"]
    (flow,) = files_of_job(room.scheduler, 1)
    assert (flow.sha256, flow.source, flow.receiver, flow.have_bytes) == (A, "master", "ant", SIZE // 4)
    assert not files_of_job(room.scheduler, 2), "another job's"
    room.tell("bee", has=[A])
    room.settle()
    room.tell("cat", wants=[A], faults=[PeerFault(A, "bee", FaultKind.SLOW)])
    room.settle()
    assert "and not from bee, which failed it lately" in told(room, "cat")


def told(room: CarryingRoom, worker: str) -> str:
    explained = explain_worker(room.scheduler, worker)
    assert explained
    return explained.sentence


def placed(room: CarryingRoom, *files: str, size: float = 1.0) -> str:
    """Where the one task of a job goes."""
    effects = room.step(JobSubmitted("user", spec_with(*files, size=size, max_replicas=1)))
    (worker,) = {attempt.worker for attempt in effects.attempts.values()}
    return worker


@pytest.mark.parametrize("holder", ["ant", "bee", "cat"])
def test_turnaround_sends_a_task_where_its_data_is(holder: str) -> None:
    room = CarryingRoom(policy="turnaround", order=Order.NONE)
    for name in ("ant", "bee", "cat"):
        room.tell(name, has=[A] if name == holder else [])
    assert placed(room, A) == holder


def test_turnaround_takes_the_data_to_the_task_when_that_is_sooner() -> None:
    room = CarryingRoom(policy="turnaround", order=Order.NONE, prefetch_s=100.0, max_prefetch=4)
    room.step(NetworkChanged(LINKS))
    for name in ("ant", "bee"):
        room.tell(name, has=[A] if name == "ant" else [])
    assert placed(room, A, size=2.0) == "ant"  # for 8 s: the others leave it a quarter of a processor
    assert placed(room, A, size=9.0) == "ant", "8 s there are less than the 16 s that the data would take"
    assert placed(room, A, size=9.0) == "bee", "44 s are more"


def spec_of_own(*files: str) -> JobSpec:
    tasks = [{"inputs": {"in": f"sha256:{file}"}} for file in files]
    return JobSpec.model_validate({"command": ["work"], "tasks": tasks, "max_replicas": 1, "size": 30.0})


@pytest.mark.parametrize("policy", ["round-robin", "fair", "first-come", "turnaround"])
def test_each_task_of_a_job_goes_where_its_own_file_is(policy: str) -> None:
    room = CarryingRoom(policy=policy, order=Order.HOLD)
    for name, file in (("ant", C), ("bee", A), ("cat", B)):
        room.tell(name, has=[file])
    effects = room.step(JobSubmitted("user", spec_of_own(A, B, C)))
    placed_on = {attempt.task: attempt.worker for attempt in effects.attempts.values()}
    assert placed_on == {1: "bee", 2: "cat", 3: "ant"}


def test_worker_without_a_file_leaves_tasks_to_workers_that_have_it() -> None:
    room = CarryingRoom(order=Order.NONE)
    for name, file in (("ant", None), ("bee", A)):
        room.tell(name, has=[file] if file else [])
    effects = room.step(JobSubmitted("user", spec_of_own(A, C, C)))
    placed_on = {attempt.task: attempt.worker for attempt in effects.attempts.values()}
    assert placed_on == {1: "bee", 2: "ant"}
    (job,) = room.scheduler.state.jobs.values()
    assert set(room.scheduler.state.fresh[job.id]) == {3}, "the task that gave way keeps its place"


def test_a_task_is_left_to_one_free_worker_that_has_its_file_and_not_more_of_them_than_there_are() -> None:
    room = CarryingRoom(order=Order.NONE)
    for name, file in (("ant", None), ("bee", A), ("cat", A)):
        room.tell(name, has=[file] if file else [])
    effects = room.step(JobSubmitted("user", spec_of_own(A, A, A, A)))
    placed_on = {attempt.task: attempt.worker for attempt in effects.attempts.values()}
    assert placed_on == {1: "bee", 2: "cat", 3: "ant"}


def test_a_worker_takes_first_what_is_at_its_own_switch() -> None:
    room = CarryingRoom(order=Order.NONE, lease_s=100.0)
    far = NetworkNode("far", "core", MIB, MIB, is_switch=True)
    nodes = {node.name: node for node in LINKS}
    at_far = (NetworkNode(name, "far", 4 * MIB, 4 * MIB) for name in ("ant", "bee"))
    room.step(NetworkChanged((*(nodes | {node.name: node for node in (far, *at_far)}).values(),)))
    for name, file in (("ant", None), ("bee", A), ("cat", C)):
        room.tell(name, has=[file] if file else [])
    effects = room.step(JobSubmitted("user", spec_of_own(A, C, C, A)))
    placed_on = {attempt.task: attempt.worker for attempt in effects.attempts.values()}
    assert placed_on == {1: "bee", 2: "cat", 4: "ant"}, "bee, from which it comes, is at the same switch"
