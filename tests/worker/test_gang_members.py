"""A gang member at its worker: prepared, started and frozen on command, given back before its start."""

from __future__ import annotations

import math

from loopline_shared.model import AttemptId, Load, Outcome
from loopline_shared.protocol.gang_messages import GangPlace, Member, MemberOrder, Word
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core import instructions as do
from loopline_worker.core.events import Assigned, Connected, DiskObserved, OwnerObserved, Restored
from loopline_worker.core.gang_members import GangMembers, PreparedMember, StartMember
from loopline_worker.core.instructions import Instructions
from loopline_worker.core.machine import Machine
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.core.owner_policy import OwnerPreferences, Policy, Signs
from loopline_worker.core.transitions import State

MEMBER = AttemptId(1, 1, 2)
RUN = Run(MEMBER, ("work",), {}, {}, gang=GangPlace(1, ("a", "b"), wait_s=30.0))


def assigned(seq: int, *words: Word, run: tuple[Run, ...] = ()) -> Assigned:
    return Assigned(Assign(seq, seq, run, words=words))


def prepared(machine: Machine, now: float = 0.0) -> None:
    steps = machine.step([assigned(1, run=(RUN,))], now)
    assert steps.todo == [do.Prepare(RUN, 1)]
    assert not steps.journal.began, "it is found again as one that has not begun"
    machine.step([PreparedMember(MEMBER, 4000)], now)


def reported(machine: Machine) -> list[Member]:
    """The members in the next Report."""
    draft = DraftReport((), Load(1))
    machine.report(draft)
    return list(draft.members)


def given_back(steps: Instructions) -> bool:
    return any(isinstance(one, do.Kill) and one.outcome is Outcome.GIVEN_BACK for one in steps.todo)


def test_member_starts_on_command_after_a_journal_entry() -> None:
    machine = Machine(1, wings=(GangMembers,))
    prepared(machine)
    assert [(one.is_ready, one.port) for one in reported(machine)] == [(True, 4000)]
    steps = machine.step([assigned(2, Word(MEMBER, MemberOrder.START, 0.2, "a:4000"))], 1.0)
    assert steps.todo == [StartMember(RUN, 0.2, "a:4000")]
    assert steps.journal.began == [MEMBER]
    assert not reported(machine)


def test_member_without_free_slots_is_given_back_at_once() -> None:
    machine = Machine(1, wings=(GangMembers,))
    machine.step([assigned(1, run=(Run(AttemptId(2, 1, 1), ("work",), {}, {}),))], 0.0)
    machine.step([assigned(2, run=(RUN,))], 0.0)
    result = machine.attempts.unsent[MEMBER].result
    assert result
    assert result.outcome is Outcome.GIVEN_BACK


def test_member_stands_down_when_the_master_is_silent() -> None:
    machine = Machine(1, wings=(GangMembers,))
    prepared(machine)
    assert not given_back(machine.step([assigned(2)], 20.0))
    assert not given_back(machine.step([DiskObserved()], 49.0))
    assert given_back(machine.step([DiskObserved()], 51.0))


def test_member_stands_down_when_the_owner_returns() -> None:
    machine = Machine(
        1,
        OwnerPreferences(Policy.WHEN_IDLE, on_battery=True, yield_to_load=False),
        grace_s=60.0,
        wings=(GangMembers,),
    )
    machine.step([OwnerObserved(Signs(1.0, 1.0, idle_s=math.inf), 0.0)], 0.0)
    prepared(machine)
    assert given_back(machine.step([OwnerObserved(Signs(1.0, 1.0, idle_s=0.0), 1.0)], 1.0))


def test_member_frozen_by_the_master_is_thawed_only_by_the_master() -> None:
    machine = Machine(1, wings=(GangMembers,))
    prepared(machine)
    machine.step([assigned(2, Word(MEMBER, MemberOrder.START))], 1.0)
    assert machine.step([assigned(3, Word(MEMBER, MemberOrder.FREEZE))], 2.0).todo == [do.Freeze(MEMBER)]
    machine.step([OwnerObserved(Signs(1.0, 1.0, idle_s=math.inf), 3.0)], 3.0)
    assert MEMBER in machine.attempts.frozen
    assert machine.step([assigned(4, Word(MEMBER, MemberOrder.THAW))], 4.0).todo == [do.Thaw(MEMBER)]


def test_restarted_agent_prepares_a_member_again() -> None:
    machine = Machine(1, wings=(GangMembers,))
    machine.step([Restored(waiting=[RUN]), Connected()], 0.0)
    assert [one.is_ready for one in reported(machine)] == [False]
    assert machine.step([assigned(1)], 1.0).todo == [do.Prepare(RUN, 1)]
    record = machine.attempts.get(MEMBER)
    assert record
    assert record.state is State.PREPARING
