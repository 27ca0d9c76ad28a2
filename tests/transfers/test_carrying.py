"""Carrying in the scheduler: plans are asked for as effects, and come back as events that are checked."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_master.core.events import NetworkChanged, TransfersPlanned, WorkerForgotten, WorkerReported
from loopline_master.core.explain.explain_transfers import explain_transfers
from loopline_master.core.kernel.effects import Declined
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers import carrying
from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.core.wings.transfers.carrier import Carrier, NumberedRequest, Transfer, pipelines_of
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.pipeline import Pipeline
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory, asked
from loopline_master.store import open_store
from loopline_master.store.replay import check
from loopline_master.transfers.solver import FILLING, Solver
from loopline_master.transfers.solver_thread import SolverThread
from loopline_shared.model import Load
from loopline_shared.protocol.transfers import Dial, FaultKind, FileFetch, Grant, PeerFault, PeerOrders
from loopline_shared.protocol.worker_link import Report
from loopline_simulator.full import ending
from tests.instructions import counted
from tests.store.workload import relive
from tests.transfers import carrying_room
from tests.transfers.carrying_room import MIB, SIZE, A, B, CarryingRoom

SWITCHES = (
    NetworkNode("core", None, is_switch=True),
    NetworkNode("left", "core", 10 * MIB, 10 * MIB, is_switch=True),
    NetworkNode("right", "core", 10 * MIB, 10 * MIB, is_switch=True),
    *(NetworkNode(name, "left", 10 * MIB, 10 * MIB) for name in ("ant", "bee", "master")),
    *(NetworkNode(name, "right", 10 * MIB, 10 * MIB) for name in ("cat", "dog")),
)


def test_nothing_is_requested_or_stored_without_large_files() -> None:
    room = CarryingRoom()
    for name in ("ant", "bee"):
        for has in ((), None):
            effects = room.tell(name, has=has)
            assert (asked(effects), effects.rows(Carrier)) == (None, {})
    assert not room.scheduler.state.own(TransferMemory).carriers


def test_reports_of_files_are_ignored_without_peers() -> None:
    room = CarryingRoom(peers=False)
    room.tell("ant", has=[A])
    assert asked(room.tell("bee", wants=[A])) is None
    assert not room.store.carriers


def test_snapshot_keeps_network_and_numbers_and_repeats_the_request() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    room.tell("ant", wants=[A])
    stale, rows = room.plan(), deepcopy(room.store.snapshot())
    event = room.scheduler.snapshot_event()
    request, again = asked(room.step(event)), Scheduler(rows)
    also_asked = asked(again.step([event], room.now))
    assert request
    assert also_asked
    assert request.number == also_asked.number == stale.number + 1
    assert (
        again.state.own(TransferMemory).transfers.nodes
        == room.scheduler.state.own(TransferMemory).transfers.nodes
        != {}
    )
    room.step(stale)
    assert room.sources() == {"ant": None}, "an answer to the request before is too late"
    room.answer()
    assert room.sources() == {"ant": MASTER}


def test_file_crosses_each_link_once_and_workers_get_the_plan() -> None:
    room = CarryingRoom()
    assert room.step(NetworkChanged(SWITCHES)).replies[0].__class__.__name__ == "Done"
    for name in ("ant", "bee", "cat", "dog"):
        room.tell(name, wants=[A])
    while room.asked:
        effects = room.answer()
    line = [MASTER, "ant", "bee", "cat", "dog"]
    assert room.sources() == dict(zip(line[1:], line, strict=False))
    assert [room.transfer(name).rate for name in line[1:]] == pytest.approx([10 * MIB] * 4)  # type: ignore[union-attr]
    assert effects.assigns.keys() >= {"bee", "cat", "dog"}


def test_neighbours_in_number_follow_one_another_in_a_line() -> None:
    room = CarryingRoom()
    for name in ("pc-10", "pc-2", "pc-1", "pc-9"):
        room.tell(name, wants=[A])
    room.asked = None
    room.step(NetworkChanged(SWITCHES[:1]))
    names = [
        node.name
        for node in room.scheduler.state.own(TransferMemory)
        .transfers.network(room.scheduler.state.own(TransferMemory).carriers)
        .nodes
    ]
    assert names == [MASTER, "pc-1", "pc-2", "pc-9", "pc-10", "core"]


def test_plan_is_adopted_and_requested_again_if_receivers_were_added() -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    room.tell("bee", wants=[A])
    plan = room.plan()
    assert asked(room.tell("cat", wants=[A])) is None, "one request at a time"
    assert asked(room.step(plan))
    assert room.sources()["bee"] in (MASTER, "ant")
    room.settle()
    assert None not in room.sources().values()


@pytest.mark.parametrize("change", ["its source has gone", "its source has it no more", "nobody wants it", "network"])
def test_a_plan_that_no_longer_fits_is_dropped_and_asked_for_again(change: str) -> None:
    room = CarryingRoom()
    room.step(NetworkChanged((*SWITCHES[:3], *SWITCHES[3:5], NetworkNode("master", "right", 1.0, 1.0))))
    room.tell("ant", has=[A])
    room.tell("bee", wants=[A, B])
    plan = room.plan()
    assert Pipeline(A, ("ant", "bee"), pytest.approx(10 * MIB)) in plan.pipelines  # type: ignore[arg-type]
    match change:
        case "its source has gone":
            room.leave("ant")
        case "its source has it no more":
            room.tell("ant", has=[])
        case "nobody wants it":
            room.tell("bee", wants=[B])
        case "network":
            room.step(NetworkChanged((NetworkNode("ant", "left", 7.0, 7.0),)))
    effects = room.step(plan)
    assert asked(effects), "it is asked for again at once"
    assert not effects.rows(Carrier), "and the old one is not in force"
    room.settle()
    assert None not in room.sources(B).values()


def test_an_answer_to_another_request_changes_nothing() -> None:
    room = CarryingRoom()
    room.tell("ant", wants=[A])
    plan = room.plan()
    room.step(TransfersPlanned(99, (Pipeline(A, (MASTER, "ant"), 5.0),), 5.0))
    assert room.sources() == {"ant": None}
    room.step(plan)
    assert room.sources() == {"ant": MASTER}
    assert not room.step(plan).rows(Carrier), "the same again"


def test_transfers_are_planned_again_when_one_ends_or_a_worker_leaves() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for name in ("cat", "dog", "ant"):
        room.tell(name, wants=[A])
    room.settle()
    assert room.sources() == {"ant": MASTER, "cat": "ant", "dog": "cat"}
    assert asked(room.tell("ant", has=[A]))
    room.settle()
    assert room.sources() == {"cat": "ant", "dog": "cat"}
    assert asked(room.leave("cat"))
    room.settle()
    assert room.sources() == {"dog": "ant"}
    room.tell("dog", has=[A])
    assert room.asked is None, "nothing is left to plan"


def test_restart_keeps_the_plan_and_requests_one() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for name in ("ant", "bee", "cat"):
        room.tell(name, wants=[A])
    room.settle()
    before, request = room.sources(), room.scheduler.state.own(TransferMemory).carriers["bee"].fetching
    assert asked(room.start())
    assert room.scheduler.state.own(TransferMemory).carriers["bee"].fetching == request
    room.step(NetworkChanged(SWITCHES))
    room.settle()
    assert room.sources() == before
    room.join("bee")
    room.tell("bee", wants={A: 5}, has=[])
    assert room.sources() == before, "its link is another, its agent is not"
    room.join("cat", boot="another")
    assert room.sources() == {"ant": MASTER, "bee": "ant"}


def test_a_restart_without_peers_forgets_all() -> None:
    room = CarryingRoom()
    room.tell("ant", wants=[A], has=[B])
    room.settle()
    room.settings = CarryingRoom(peers=False).settings
    assert asked(room.start()) is None
    assert not any(carrier.is_known for carrier in room.scheduler.state.own(TransferMemory).carriers.values())


def test_replay_reads_the_plans_and_needs_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    for name in ("bee", "cat"):
        room.tell(name, wants=[A, B])
        room.settle()
    room.start()
    room.tell("bee", wants={B: 7}, has=[A])
    room.settle()
    monkeypatch.setattr(NumberedRequest, "request", None)
    monkeypatch.setattr(Solver, "plan", None)
    ending.check_replay(room.store)


def orders_of(room: CarryingRoom, name: str) -> PeerOrders:
    return room.assigns[name].peers or PeerOrders()


def test_assign_names_sources_rates_and_receivers() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    room.tell("zoe")
    for name in ("ant", "bee", "cat"):
        room.tell(name, wants=[A])
        assert orders_of(room, name).fetch == (FileFetch(A, (), waits=True),), "the plan is being made"
    room.settle()
    named = {name: orders_of(room, name).fetch[0] for name in ("ant", "bee", "cat")}
    sources = {name: [source.worker for source in fetch.sources] for name, fetch in named.items()}
    assert sources == {"ant": [], "bee": ["ant"], "cat": ["bee", "ant"]}, "those before are there if one dies"
    assert [fetch.rate_bytes_s for fetch in named.values()] == pytest.approx([10 * MIB] * 3)
    assert not any(fetch.waits for fetch in named.values())
    assert orders_of(room, "ant").dial == (Dial(Grant(A, "ant", "bee", 0.0)),)
    assert orders_of(room, "cat").dial == ()
    room.tell("ant", has=[A])
    assert orders_of(room, "ant") == PeerOrders((), (Dial(Grant(A, "ant", "bee", 0.0)),)), "it serves on"
    room.tell("bee", has=[A])
    room.tell("cat", has=[A])
    room.tell("ant")
    assert room.assigns["ant"].peers is None
    assert room.assigns["zoe"].peers is None


def test_first_pieces_travel_alone_while_the_place_of_a_receiver_is_a_guess() -> None:
    room = CarryingRoom()
    guessed = tuple(replace(node, is_guess=not node.is_switch and node.name != MASTER) for node in SWITCHES)
    room.step(NetworkChanged(guessed))
    for name in ("ant", "bee"):
        room.tell(name, wants=[A])
    room.settle()
    first = {name: orders_of(room, name).fetch[0] for name in ("ant", "bee")}
    assert [len(fetch.sources) for fetch in first.values()] == [0, 1]
    assert [fetch.until_bytes for fetch in first.values()] == [MIB, MIB // 4]
    room.tell("zoe", wants={A: 8 * MIB})
    room.settle()
    assert orders_of(room, "zoe").fetch[0].until_bytes is None, "it is well on its way"
    room.step(NetworkChanged(SWITCHES))
    told = room.answer().assigns
    assert {"ant", "bee"} <= told.keys()
    assert orders_of(room, "ant").fetch[0].until_bytes is None
    assert orders_of(room, "bee").fetch[0].until_bytes is None


def test_first_pieces_do_not_travel_alone_for_ever() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(tuple(replace(node, is_guess=not node.is_switch) for node in SWITCHES)))
    room.tell("ant", wants=[A])
    room.settle()
    assert orders_of(room, "ant").fetch[0].until_bytes == MIB
    room.step(after_s=5.0)
    room.tell("ant", wants={A: MIB})
    assert orders_of(room, "ant").fetch[0].until_bytes is None


def test_receiver_is_not_limited_to_first_pieces_by_later_receivers() -> None:
    room = CarryingRoom()
    nodes = tuple(replace(node, is_guess=node.name == "bee") for node in SWITCHES)
    room.step(NetworkChanged(nodes))
    room.tell("ant", wants=[A])
    room.step(after_s=3.0)
    room.tell("bee", wants=[A])
    room.settle()
    assert [orders_of(room, name).fetch[0].until_bytes for name in ("ant", "bee")] == [MIB, MIB // 4]
    room.step(after_s=2.0)
    room.tell("ant", wants={A: MIB})
    room.tell("bee", wants=[A])
    assert [orders_of(room, name).fetch[0].until_bytes for name in ("ant", "bee")] == [None, MIB // 4]


def test_receiver_of_large_pieces_is_limited_once_it_has_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_room, "SIZE", 2**34)
    room = CarryingRoom()
    room.step(NetworkChanged(tuple(replace(node, is_guess=not node.is_switch) for node in SWITCHES)))
    for have_bytes in (0, 4 * MIB):
        room.tell("ant", wants={A: have_bytes})
        room.settle()
        assert orders_of(room, "ant").fetch[0].until_bytes == 4 * MIB


def test_orders_on_a_known_network_take_equally_long_with_many_workers() -> None:
    """Instructions are counted, the least of several readings."""

    def instructions(workers: int) -> int:
        room = CarryingRoom()
        room.step(NetworkChanged(SWITCHES))
        for number in range(workers):
            room.tell(f"w{number}", has=[B])
        room.tell("ant", wants=[A])
        room.settle()
        state = room.scheduler.state
        return min(counted(lambda: carrying.orders(state, "ant")) for _ in range(3))

    assert instructions(40) == instructions(2)


def test_waves_of_a_file_are_sorted_by_progress() -> None:
    """With 1,001 receivers, each far behind the one before it."""
    wanting = {f"w{number}": Transfer(2**40, 0.0, 2**39 - number * 4 * MIB, 0.0) for number in range(1001)}
    carriers = tuple((name, dict[str, int](), {A: transfer}) for name, transfer in wanting.items())
    request = NumberedRequest(1, 0.0, Network([NetworkNode("root", None, is_switch=True)]), carriers, {}, frozenset())
    demands = sorted(request.request().demands, key=lambda demand: demand.file)
    assert [demand.host for demand in demands] == list(wanting)


def test_only_a_changed_plan_is_sent() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for name in ("ant", "bee"):
        room.tell(name, wants=[A])
        room.settle()
    assert not room.step(NetworkChanged((NetworkNode("cat", "right", 5.0, 5.0),))).assigns
    assert not room.answer().assigns
    room.step(NetworkChanged((NetworkNode("bee", "left", 3 * MIB, 3 * MIB),)))
    told = room.answer().assigns
    assert "bee" in told
    assert told["bee"].peers
    assert told["bee"].peers.fetch[0].rate_bytes_s == 3 * MIB


def test_a_rate_of_nothing_means_wait_and_no_plan_at_all_means_the_master() -> None:
    room = CarryingRoom()
    room.tell("ant", wants=[A])
    assert room.asked
    room.step(TransfersPlanned(room.asked.number, (Pipeline(A, (MASTER, "ant"), 0.0),), 0.0))
    assert orders_of(room, "ant").fetch == (FileFetch(A, (), waits=True),)
    room.tell("bee", wants=[A])
    room.step(TransfersPlanned(room.asked.number, (), 0.0))
    room.tell("ant", wants=[A])
    assert orders_of(room, "ant").fetch == (FileFetch(A, ()),)


def test_a_new_receiver_does_not_wait_for_a_plan_for_ever() -> None:
    room = CarryingRoom()
    room.tell("ant", wants=[A])
    room.step(after_s=6.0)
    room.tell("ant", wants=[A])
    assert room.scheduler.state.own(TransferMemory).transfers.is_pending
    assert orders_of(room, "ant").fetch == (FileFetch(A, ()),)


def test_a_source_that_failed_a_receiver_is_not_named_to_it_and_the_plan_goes_round_it() -> None:
    room = CarryingRoom(lease_s=1000.0)
    room.step(NetworkChanged(SWITCHES))
    for name in ("ant", "bee", "cat"):
        room.tell(name, wants=[A])
    room.settle()
    assert room.sources()["cat"] == "bee"
    room.tell("cat", wants=[A], faults=[PeerFault(A, "bee", FaultKind.SLOW)])
    assert [source.worker for source in orders_of(room, "cat").fetch[0].sources] == ["ant"]
    room.settle()
    assert room.sources()["bee"] in ("ant", MASTER)
    assert room.sources()["cat"] in ("ant", MASTER)
    room.step(after_s=130.0)
    room.tell("cat", wants=[A])
    room.tell("dog", wants=[A])
    room.settle()
    assert room.sources()["cat"] in ("ant", "bee", MASTER, "dog")


def test_whom_several_accuse_passes_nothing_on_for_a_while() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    room.tell("ant", has=[A])
    for name in ("bee", "cat"):
        room.tell(name, wants=[A], faults=[PeerFault(A, "ant", FaultKind.SILENT)])
    room.tell("dog", wants=[A])
    room.settle()
    assert "ant" not in room.sources().values()


def test_unreachable_worker_is_planned_where_it_can_dial() -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    fault = PeerFault(A, "ant", FaultKind.UNREACHABLE)
    room.tell("bee", wants=[A], faults=[fault])
    assert not room.scheduler.state.own(TransferMemory).carriers["bee"].avoids("ant", room.now)
    room.tell("bee", wants=[A], faults=[fault], port=None)
    assert room.scheduler.state.own(TransferMemory).carriers["bee"].avoids("ant", room.now)


def test_lying_source_is_quarantined_until_it_returns() -> None:
    room = CarryingRoom(quarantine_s=20.0, lease_s=100.0)
    room.tell("liar", has=[A])
    room.tell("bee", wants=[A])
    stale = room.plan()
    room.tell("bee", wants=[A], faults=[PeerFault(A, "liar", FaultKind.WRONG_CONTENT)])
    worker = room.scheduler.state.workers["liar"]
    assert worker.quarantined_until == pytest.approx(room.now + 20.0)
    assert "wrong bytes" in worker.quarantine_reason
    assert "bee" in worker.quarantine_reason
    room.step(stale)
    room.tell("cat", wants=[A])
    room.settle()
    assert "liar" not in room.sources().values()
    room.tell("liar", has=[A], wants=[B])
    room.settle()
    assert room.sources(B) == {"liar": MASTER}, "it is helped itself"
    for name in ("bee", "cat"):
        room.tell(name)
    assert room.step(after_s=21.0).workers["liar"].quarantined_until is None
    room.tell("dog", wants=[A])
    room.settle()
    assert room.sources() == {"dog": "liar"} or room.sources() == {"dog": MASTER}


async def test_rows_and_log_of_transfers_agree_in_a_real_store(tmp_path: Path) -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for name in ("ant", "bee"):
        room.tell(name, wants=[A], has=[B])
        room.settle()
    url = f"sqlite:///{tmp_path}/loopline.db"
    async with open_store(url) as store:
        await relive(store, room.store.log)
        found = await store.snapshot()
    assert {carrier.name: carrier for carrier in found.carriers} == room.scheduler.state.own(TransferMemory).carriers
    assert await check(url) == []


def test_overdue_demand_is_planned_with_a_minimum_rate() -> None:
    room = CarryingRoom(lease_s=100.0)
    room.tell("ant", wants=[A])
    asked = room.asked
    assert asked
    room.step(TransfersPlanned(asked.number, (Pipeline(A, (MASTER, "ant"), 0.0),), 0.0))
    waiting = room.transfer("ant")
    assert waiting
    assert (waiting.source, waiting.rate) == (MASTER, 0.0)
    room.asked = None
    wake_at = room.scheduler.wake_at
    assert wake_at == waiting.since + 30
    room.step(after_s=wake_at - room.now)
    assert room.asked
    assert [demand.overdue for demand in room.asked.request().demands] == [True]
    assert room.asked.request().least_rate > 0


def test_a_network_that_is_no_tree_is_declined_and_the_one_before_stays() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for nodes in ((NetworkNode("x", "nowhere"),), (NetworkNode("second", None, is_switch=True),)):
        (reply,) = room.step(NetworkChanged(nodes)).replies
        assert isinstance(reply, Declined)
    room.step(NetworkChanged((), gone=("dog",)))
    network = room.scheduler.state.own(TransferMemory).transfers.network(["ant", "zoe"])
    assert {"ant", "bee", "cat", "zoe", MASTER} <= network.number.keys()
    assert "dog" not in network.number
    assert network.nodes[network.number["zoe"]].parent == "core"


def test_a_worker_called_as_the_master_or_a_switch_takes_files_from_the_master() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for name in (MASTER, "left", "ant"):
        room.tell(name, wants=[A])
    room.settle()
    assert room.sources() == {MASTER: None, "left": None, "ant": MASTER}


def test_expected_arrival_follows_the_measured_flow() -> None:
    transfer = Transfer(SIZE, 0.0, SIZE // 4, 1.0, SIZE / 8)
    assert transfer.left_bytes(1.0) == SIZE * 3 / 4
    assert transfer.left_bytes(3.0) == SIZE / 2
    assert transfer.left_bytes(100.0) == 0.0


def test_pipelines_follow_from_sources_of_receivers() -> None:
    def of(source: str | None) -> Transfer:
        return Transfer(SIZE, 0.0, 0, 0.0, 0.0, source, 3.0)

    carriers = {"b": of("a"), "c": of("b"), "e": of("a"), "f": of(None), "g": of("gone"), "h": of("g")}
    found = {line.hosts for line in pipelines_of(A, carriers)}
    assert found == {("a", "b", "c"), ("a", "e"), ("gone", "g", "h")}
    assert not list(pipelines_of(A, {"x": of("y"), "y": of("x")})), "a circle begins nowhere"


def test_late_receiver_fetches_from_receivers_ahead_of_it() -> None:
    room = CarryingRoom()
    room.step(NetworkChanged(SWITCHES))
    for name in ("bee", "cat"):
        room.tell(name, wants=[A])
    room.settle()
    assert room.sources() == {"bee": MASTER, "cat": "bee"}
    for name in ("bee", "cat"):
        room.tell(name, wants={A: SIZE * 3 // 4})
    room.tell("ant", wants=[A])
    room.tell("dog", wants=[A])
    room.settle()
    late = {name: room.sources()[name] for name in ("ant", "dog")}
    assert {room.sources()[name] for name in ("bee", "cat")} <= {MASTER, "bee", "cat"}
    assert set(late.values()) <= {MASTER, "bee", "cat", "ant", "dog"}
    assert set(late.values()) & {MASTER, "bee", "cat"}


async def test_the_solver_runs_in_a_thread_and_a_failure_is_an_empty_plan() -> None:
    room, posted = CarryingRoom(), asyncio.Queue[TransfersPlanned]()
    room.tell("ant", wants=[A])
    took: list[float] = []
    thread = SolverThread(FILLING, took.append)
    thread.post = posted.put_nowait
    assert room.asked
    thread.start(room.asked)
    answer = await posted.get()
    assert answer == room.plan()
    assert len(took) == 1
    room.step(answer)
    broken = SolverThread(Solver("broken", lambda programme: [0.0][len(programme.weights) :][0:] or 1 / 0))  # type: ignore[arg-type,return-value]
    broken.post = posted.put_nowait
    room.tell("bee", wants=[A])
    assert room.asked
    broken.start(room.asked)
    answer = await posted.get()
    assert answer.pipelines == ()
    assert asked(room.step(answer)) is None, "not again before something changes"
    assert room.sources() == {"ant": None, "bee": None}
    for one in (thread, broken):
        one.close()
    thread.start(
        NumberedRequest(9, 0.0, room.scheduler.state.own(TransferMemory).transfers.network([]), (), {}, frozenset())
    )
    assert posted.empty(), "a master that stops plans nothing more"


def test_source_of_a_forgotten_worker_continues() -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    room.tell("bee", wants=[A])
    room.settle()
    assert room.sources() == {"bee": "ant"}
    room.leave("bee")
    room.step(WorkerForgotten("bee"))
    room.tell("ant")
    assert room.assigns["ant"].peers is None


def test_plan_without_a_forgotten_source_is_adopted() -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    room.tell("bee", wants=[A])
    room.settle()
    assert room.sources() == {"bee": "ant"}
    room.leave("ant")
    room.step(WorkerForgotten("ant"))
    room.tell("bee", wants=[A])
    room.settle()
    assert room.sources() == {"bee": MASTER}


def test_whose_source_was_forgotten_is_explained_before_there_is_another_plan() -> None:
    room = CarryingRoom()
    room.tell("ant", has=[A])
    room.tell("bee", wants=[A])
    room.settle()
    room.leave("ant")
    room.step(WorkerForgotten("ant"))
    (reason,) = explain_transfers(room.scheduler.state, "bee")
    assert "from worker ant, which is gone" in reason.detail


def test_reports_of_other_sessions_are_ignored() -> None:
    room = CarryingRoom()
    told = room.tell("ant", wants=[A])
    assert asked(told)
    report = Report(2, 0, (), (), Load(1))
    assert room.step(WorkerReported("ant", 999, report)).rows(Carrier) == {}
