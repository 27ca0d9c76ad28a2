"""Sources that fall silent: one accuser is enough if the master can confirm the accusation."""

from __future__ import annotations

import pytest

from loopline_master.core.events import NetworkChanged
from loopline_master.core.wings.transfers.carrier import Carrier
from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory, asked
from loopline_shared.protocol.transfers import FaultKind, PeerFault
from tests.transfers.carrying_room import MIB, SIZE, A, B, CarryingRoom

HOSTS = ("ant", "bee", "cat", "dog", "eel")
SWITCHES = (
    NetworkNode("core", None, is_switch=True),
    NetworkNode("left", "core", 3 * MIB, 3 * MIB, is_switch=True),
    NetworkNode("right", "core", 3 * MIB, 3 * MIB, is_switch=True),
    *(NetworkNode(name, "left", 10 * MIB, 10 * MIB) for name in ("ant", "bee", "cat", "master")),
    *(NetworkNode(name, "right", 10 * MIB, 10 * MIB) for name in ("dog", "eel")),
)
LINE = {"ant": "master", "bee": "ant", "cat": "bee", "eel": "cat", "dog": "eel"}


def silent(source: str, lives: bool | None) -> PeerFault:
    return PeerFault(A, source, FaultKind.SILENT, lives)


def a_line() -> CarryingRoom:
    """A line of five. Bee will fall silent: cat fetches from it, and has as much as bee reported last."""
    room = CarryingRoom(lease_s=1000.0)
    room.step(NetworkChanged(SWITCHES))
    for name in HOSTS:
        room.tell(name, wants=[A])
    room.settle()
    for name in HOSTS:
        room.tell(name, wants={A: MIB})
    room.settle()
    assert room.sources() == LINE
    return room


def sources_named(room: CarryingRoom, name: str) -> list[str]:
    orders = room.assigns[name].peers
    return [source.worker for source in orders.fetch[0].sources] if orders else []


def test_mute_source_is_assigned_to_no_receiver_until_it_reports() -> None:
    room = a_line()
    before = room.transfer("bee")
    room.tell("cat", wants={A: MIB}, faults=[silent("bee", lives=False)])
    room.tell("eel", wants={A: MIB})
    assert sources_named(room, "eel") == ["cat", "ant"], "also not as one to fall back upon"
    room.settle()
    assert room.sources() == LINE | {"cat": "ant"}, "all others go on as they did"
    assert room.transfer("bee") == before, "and so does it, if it lives"
    room.start()
    room.tell("cat", wants={A: MIB})
    room.settle()
    assert room.sources() == LINE | {"cat": "ant"}
    room.tell("ant", wants={A: MIB})
    room.tell("bee", wants=[], has=[A])
    room.settle()
    assert room.scheduler.state.own(TransferMemory).carriers["bee"].unheard_since is None
    room.leave("ant")
    room.tell("dog", wants=[A, B])
    room.settle()
    assert "bee" in room.sources().values(), "it may serve again"


def test_source_that_passes_nothing_on_is_excluded_for_a_while() -> None:
    room = a_line()
    room.tell("bee", wants={A: 6 * MIB})
    room.tell("cat", wants={A: MIB}, faults=[silent("bee", lives=True)])
    room.settle()
    room.tell("bee", wants={A: 7 * MIB})
    room.settle()
    found = room.sources()
    assert "bee" not in found.values()
    assert None not in found.values(), "it is helped itself"
    assert room.scheduler.state.own(TransferMemory).carriers["bee"].is_mute(room.now)
    assert not room.scheduler.state.own(TransferMemory).carriers["bee"].is_mute(room.now + 31)


@pytest.mark.parametrize("lives", [True, None], ids=["has hardly more", "hung up"])
def test_source_with_a_doubtful_fault_is_kept_only_from_its_accuser(lives: bool | None) -> None:
    room = a_line()
    room.tell("bee", wants={A: 2 * MIB})
    room.tell("cat", wants={A: MIB}, faults=[silent("bee", lives)])
    room.settle()
    bee = room.scheduler.state.own(TransferMemory).carriers["bee"]
    assert room.scheduler.state.own(TransferMemory).carriers["cat"].avoids("bee", room.now)
    assert (bee.is_mute(room.now), bee.unheard_since) == (False, None)
    assert room.sources()["cat"] != "bee"


def test_receiver_that_accuses_one_source_after_another_is_believed_once() -> None:
    room = a_line()
    room.tell("cat", wants={A: MIB}, faults=[silent("bee", lives=False)])
    room.tell("bee", wants={A: MIB})
    room.tell("cat", wants={A: MIB}, faults=[silent("bee", lives=False), silent("ant", lives=False)])
    state = room.scheduler.state
    assert not any(state.own(TransferMemory).carriers[name].is_mute(room.now) for name in ("ant", "bee"))
    room.leave("bee")
    room.tell("eel", wants={A: MIB}, faults=[silent("bee", lives=False)])
    room.tell("eel", wants={A: MIB}, faults=[silent("ant", lives=False)])
    assert state.own(TransferMemory).carriers["ant"].is_mute(room.now), "one that has gone speaks for its accuser"


def test_plan_with_a_mute_source_inside_a_line_is_dropped() -> None:
    room = a_line()
    room.step(NetworkChanged((NetworkNode("dog", "left", 10 * MIB, 10 * MIB),)))
    plan = room.plan()
    assert any("bee" in line.hosts[:-1] for line in plan.pipelines)
    room.tell("cat", wants={A: SIZE // 2}, faults=[silent("bee", lives=False)])
    effects = room.step(plan)
    assert asked(effects), "it is asked for again"
    assert not effects.rows(Carrier)
    room.settle()
    assert "bee" not in room.sources().values()


def test_receiver_of_a_departed_source_stays_in_its_line() -> None:
    room = a_line()
    room.leave("bee")
    room.tell("cat", wants={A: MIB}, faults=[silent("bee", lives=None)])
    while room.asked:
        request = room.asked.request()
        assert len(request.holders) == 1, "all are of one wave"
        room.answer()
    assert "bee" not in room.sources().values()
