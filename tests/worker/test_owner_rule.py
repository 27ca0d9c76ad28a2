"""Whom the machine freezes, thaws and gives back, as the owner comes and goes."""

import math

from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core.attempts import AttemptRecord
from loopline_worker.core.events import (
    AttemptEnded,
    Cleared,
    DiskObserved,
    Followed,
    FreezeCompleted,
    OwnerObserved,
    Stopping,
)
from loopline_worker.core.instructions import Instructions, Kill, RecordPreemption, Urgency
from loopline_worker.core.owner import PreemptionOrder, Steps
from loopline_worker.core.owner_policy import Decision, OwnerPreferences, Policy, Signs
from loopline_worker.core.transitions import State
from tests.worker.worker_machine import (
    A,
    B,
    C,
    Driver,
    assigned,
    frozen,
    killed,
    prefetched,
    result,
    retracts,
    run,
    started,
    thawed,
)

TERMS = OwnerPreferences(Policy.SPARE, leave_cores=0.0, leave_memory_bytes=100)
SLOTS = 3


def owned(*runs: AttemptId | Run, grace_s: float = 10.0, preferences: OwnerPreferences = TERMS) -> Driver:
    """A machine of three slots that runs these; its owner is away."""
    machine = Driver(SLOTS, preferences, grace_s)
    looks(machine, SLOTS)
    machine.happens(assigned(*runs))
    machine.reports(1)
    return machine


def looks(
    machine: Driver,
    spare: float,
    at_s: float | None = None,
    *,
    paused: str = "",
    memory: int = 100,
    network: str = "",
) -> Instructions:
    """The owner leaves so many cores, at this time."""
    signs = Signs(SLOTS, spare, idle_s=math.inf, memory_available_bytes=memory, paused=paused, network=network)
    after_s = 0.0 if at_s is None else at_s - machine.now
    return machine.happens(OwnerObserved(signs, 0.0), after_s=after_s)


def test_frozen_when_the_owner_comes_and_thawed_when_the_owner_leaves() -> None:
    machine = owned(A, B)
    steps = looks(machine, 0, 1)
    assert (frozen(steps), steps.report) == ([A, B], Urgency.NOW)
    assert (machine.state(A), machine.slots_offered) == (State.FROZEN, 0)
    machine.happens(FreezeCompleted(A), FreezeCompleted(B))
    steps = looks(machine, 0, 2)
    assert (steps.todo, steps.report) == ([], Urgency.NOT)
    assert thawed(looks(machine, 3, 9)) == [A, B]
    assert frozen(looks(machine, 0, 18)) == [A, B], "with a new grace time"
    assert killed(looks(machine, 0, 27.9)) == []
    steps = looks(machine, 0, 28)
    assert [each for each in steps.todo if isinstance(each, Kill)] == [
        Kill(A, Outcome.GIVEN_BACK, "the owner's programs need the processor"),
        Kill(B, Outcome.GIVEN_BACK, "the owner's programs need the processor"),
    ]
    assert machine.state(A) is State.ENDING
    assert thawed(looks(machine, 3, 99)) == [], "it takes no further part"


def test_the_youngest_stand_still_first_and_go_on_last() -> None:
    machine = owned(A, B, C)
    assert frozen(looks(machine, 2, 0)) == [C]
    machine.happens(FreezeCompleted(C))
    assert frozen(looks(machine, 1, 1)) == [B]
    assert thawed(looks(machine, 2, 2)) == [B]
    assert killed(looks(machine, 2, 10)) == [C]


def test_what_ends_makes_room_for_what_is_frozen() -> None:
    machine = owned(A, B)
    looks(machine, 1, 0)
    assert thawed(machine.ends(A)) == [B]


def test_a_wide_attempt_needs_all_its_slots() -> None:
    machine = owned(run(A, slots=2), B)
    assert frozen(looks(machine, 1)) == [A]
    assert thawed(looks(machine, 3)) == [A]


def test_a_pause_gives_back_at_once() -> None:
    machine = owned(A, B)
    assert killed(looks(machine, 3, paused="for good")) == [A, B]


def test_for_want_of_memory_the_youngest_is_given_back_one_at_a_time() -> None:
    machine = owned(A, B, C)
    assert killed(looks(machine, 3, 0, memory=0)) == [C]
    assert machine.slots_offered == 2, "what it leaves is not lent again"
    assert killed(looks(machine, 3, 1, memory=0)) == [], "until it shows"
    assert killed(looks(machine, 3, 6, memory=0)) == [B]
    assert killed(looks(machine, 3, 20)) == []
    assert machine.slots_offered == 3


def test_while_memory_is_short_nothing_new_is_taken() -> None:
    machine = owned()
    looks(machine, 3, memory=0)
    assert machine.slots_offered == 0
    assert started(machine.happens(assigned(A))) == []
    assert machine.outcomes() == {A: (Outcome.GIVEN_BACK, "too little memory would be left to the owner")}


def test_without_the_network_what_runs_goes_on_and_is_not_replaced() -> None:
    machine = owned(A, B)
    assert not looks(machine, 3, network="metered").todo[1:], "but for a line in the log"
    assert machine.slots_offered == 2
    assert started(machine.happens(assigned(A, B, C))) == []
    assert machine.outcomes() == {C: (Outcome.GIVEN_BACK, "metered")}
    looks(machine, 3)
    assert machine.slots_offered == 3


def test_what_stands_frozen_gets_no_new_neighbours() -> None:
    machine = owned(A, B)
    looks(machine, 1)
    assert started(machine.happens(assigned(C))) == []
    assert machine.outcomes() == {C: (Outcome.GIVEN_BACK, "the owner's programs need the processor")}


def test_nothing_is_prefetched_and_nothing_begins_where_more_run_than_are_allowed() -> None:
    machine = owned(A, B, grace_s=0.0)
    assert killed(looks(machine, 1)) == [B]
    steps = machine.happens(assigned(C), room=8)
    assert (started(steps), prefetched(steps)) == ([], []), "the slot of what is given back is taken until it ends"
    assert machine.waiting == [C]


def test_how_long_it_took_is_recorded_once_all_stands_still() -> None:
    machine = owned(A, B, preferences=OwnerPreferences(idle_s=60.0))
    signs = Signs(SLOTS, SLOTS, idle_s=0.0)
    steps = machine.happens(OwnerObserved(signs, input_at=4.5), after_s=5.0)
    assert (frozen(steps), machine.freezing) == ([A, B], 2)
    machine.happens(FreezeCompleted(A))
    assert frozen(machine.happens(OwnerObserved(signs, 4.5), after_s=0.25)) == [B], "it may move still"
    steps = machine.happens(FreezeCompleted(B), after_s=0.25)
    assert steps.todo == [RecordPreemption("somebody is using this computer", 2, took_s=1.0, after_input=True)]
    assert steps.report is Urgency.NOW
    assert machine.freezing == 0


def test_where_nobody_can_tell_no_input_is_counted() -> None:
    machine = owned(A, preferences=OwnerPreferences(idle_s=60.0))
    machine.happens(OwnerObserved(Signs(SLOTS, SLOTS, idle_s=None), input_at=0.0), after_s=5.0)
    (recorded,) = machine.happens(FreezeCompleted(A)).todo
    assert isinstance(recorded, RecordPreemption)
    assert (recorded.took_s, recorded.after_input) == (0.0, False)


def test_what_ends_or_goes_on_is_not_waited_for_to_stand_still() -> None:
    machine = owned(A, B)
    looks(machine, 0)
    machine.ends(A)
    looks(machine, 1)
    assert machine.freezing == 0
    assert machine.state(B) is State.RUNNING


def test_what_follows_a_frozen_one_stands_still_in_its_place() -> None:
    machine = owned(A, B, C)
    machine.happens(assigned(AttemptId(2, 1, 1)), room=1)
    follower = AttemptId(2, 1, 1)
    assert retracts(looks(machine, 2, 5))
    assert frozen(machine.happens(Followed(C, follower))) == [follower]
    assert machine.state(follower) is State.FROZEN
    assert frozen(looks(machine, 2, 6)) == [follower]
    assert killed(looks(machine, 2, 15)) == [follower], "its grace time began with that of the other"


def test_what_follows_one_that_was_given_back_is_held_against_the_consent() -> None:
    machine = owned(A, B, C, grace_s=0.0)
    machine.happens(assigned(AttemptId(2, 1, 1)), room=1)
    assert killed(looks(machine, 2)) == [C]
    assert killed(machine.happens(Followed(C, AttemptId(2, 1, 1)))) == [AttemptId(2, 1, 1)]


def test_what_is_frozen_is_stopped_again_with_each_sample() -> None:
    machine = owned(A, B)
    looks(machine, 1)
    machine.happens(FreezeCompleted(B))
    assert frozen(machine.happens(DiskObserved())) == [B], "a process that was just being made when others stopped"


def test_where_the_disk_is_short_the_youngest_is_given_back_and_the_next_when_its_folder_is_gone() -> None:
    machine = owned(A, B, C)
    short = DiskObserved("full", shortage="less than 1 bytes are free")
    assert machine.happens(short).todo[-1] == Kill(C, Outcome.GIVEN_BACK, "less than 1 bytes are free")
    assert killed(machine.happens(short)) == []
    machine.happens(AttemptEnded(result(C), leaves_folder=True))
    assert killed(machine.happens(short)) == []
    machine.happens(Cleared(C))
    assert killed(machine.happens(short)) == [B]
    machine.happens(AttemptEnded(result(B)))
    assert killed(machine.happens(short)) == [A]


def test_an_obstacle_is_told_at_once_and_so_is_its_end() -> None:
    machine = owned(A)
    assert machine.happens(DiskObserved("full")).report is Urgency.NOW
    assert machine.slots_offered == 0
    assert machine.happens(DiskObserved("full")).report is Urgency.NOT
    assert machine.happens(DiskObserved()).report is Urgency.NOW
    assert machine.slots_offered == 3


def test_trouble_is_over_when_files_can_be_written_again() -> None:
    machine = owned(A)
    machine.happens(AttemptEnded(result(A, Outcome.GIVEN_BACK), trouble="no file descriptor left"))
    assert (machine.trouble, machine.slots_offered) == ("no file descriptor left", 0)
    machine.happens(DiskObserved())
    assert machine.slots_offered == 0
    machine.happens(DiskObserved(is_writable=True))
    assert (machine.trouble, machine.slots_offered) == ("", 3)


def test_no_look_brings_slots_back_to_one_that_stops() -> None:
    machine = owned(A)
    machine.happens(Stopping())
    looks(machine, 3)
    machine.happens(DiskObserved())
    assert machine.slots_offered == 0


# The preemption order alone.

happenings = st.one_of(
    st.tuples(st.just("begins"), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(st.just("ends"), st.integers(1, 6)),
    st.tuples(st.just("look"), st.integers(0, 6), st.floats(0, 20), st.booleans(), st.booleans()),
)


@given(st.lists(happenings, max_size=60))
def test_in_any_order_what_runs_fits_and_what_stands_still_does_not(story: list[tuple[object, ...]]) -> None:
    order, now, hand = PreemptionOrder(10.0), 0.0, dict[int, AttemptRecord]()
    for what, *given_ in story:
        if what == "begins":
            hand.setdefault(
                given_[0], AttemptRecord(AttemptId(1, given_[0], 1), State.RUNNING, slots=given_[1], began=len(hand))
            )
        elif what == "ends":
            hand.pop(given_[0], None)
        else:
            allowed, passed, at_once, short = given_
            now += passed
            steps = order.steps(list(hand.values()), Decision(allowed, "", at_once, short), now)
            _carry_out(steps, hand, now, grace_is_over=at_once or short)
            running = [attempt.slots for attempt in hand.values() if attempt.state is State.RUNNING]
            still = [attempt for attempt in hand.values() if attempt.state is State.FROZEN]
            assert sum(running) <= allowed
            if not (short or at_once):
                assert all(attempt.slots > allowed - sum(running) for attempt in still)
                assert all(now - attempt.frozen_at < 10.0 for attempt in still)


def _carry_out(steps: Steps, hand: dict[int, AttemptRecord], now: float, *, grace_is_over: bool) -> None:
    for attempt in steps.freeze:
        assert attempt.state is State.RUNNING
        attempt.state, attempt.frozen_at = State.FROZEN, now
    for attempt in steps.thaw:
        assert attempt.state is State.FROZEN
        attempt.state = State.RUNNING
    for attempt in steps.preempt:
        del hand[attempt.id.task]
        assert grace_is_over or (attempt.state is State.FROZEN and now - attempt.frozen_at >= 10.0)
