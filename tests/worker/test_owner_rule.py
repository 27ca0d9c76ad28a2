"""The attempts that the machine freezes, thaws and gives back as the owner comes and goes."""

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
from loopline_worker.core.owner import OTHERS_WAIT, PreemptionOrder, Steps
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
    preempted,
    prefetched,
    result,
    retracts,
    run,
    started,
    thawed,
)

TERMS = OwnerPreferences(Policy.SPARE, reserve_cores=0.0, reserve_memory_bytes=100)
SLOTS = 3


def owned(*runs: AttemptId | Run, grace_s: float = 10.0, preferences: OwnerPreferences = TERMS) -> Driver:
    """A machine with three slots that runs these attempts; its owner is absent."""
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
    """Step an observation: the owner leaves ``spare`` cores, at the time ``at_s``."""
    signs = Signs(SLOTS, spare, idle_s=math.inf, memory_available_bytes=memory, paused=paused, network=network)
    after_s = 0.0 if at_s is None else at_s - machine.now
    return machine.happens(OwnerObserved(signs, 0.0), after_s=after_s)


def test_attempts_are_frozen_while_the_owner_is_present() -> None:
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
    assert thawed(looks(machine, 3, 99)) == [], "a given-back attempt is not considered any more"


def test_youngest_attempts_are_frozen_first_and_thawed_last() -> None:
    machine = owned(A, B, C)
    assert frozen(looks(machine, 2, 0)) == [C]
    machine.happens(FreezeCompleted(C))
    assert frozen(looks(machine, 1, 1)) == [B]
    assert thawed(looks(machine, 2, 2)) == [B]
    assert killed(looks(machine, 2, 10)) == [C]


def test_ended_attempt_lets_a_frozen_one_thaw() -> None:
    machine = owned(A, B)
    looks(machine, 1, 0)
    assert thawed(machine.ends(A)) == [B]


def test_attempt_of_several_slots_needs_all_of_them() -> None:
    machine = owned(run(A, slots=2), B)
    assert frozen(looks(machine, 1)) == [A]
    assert thawed(looks(machine, 3)) == [A]


def test_preempted_attempts_are_given_back_if_they_are_frozen() -> None:
    machine = owned(A, B)
    looks(machine, 1, 0)
    machine.happens(FreezeCompleted(B))
    steps = machine.happens(preempted(A, B, C))
    assert steps.todo == [Kill(B, Outcome.GIVEN_BACK, OTHERS_WAIT)]
    assert (machine.state(A), machine.state(B)) == (State.RUNNING, State.ENDING)
    assert machine.happens(preempted(A, B)).todo == []
    machine.happens(AttemptEnded(result(B, Outcome.GIVEN_BACK)))
    assert machine.happens(preempted(A, B)).todo == []


def test_pause_gives_attempts_back_at_once() -> None:
    machine = owned(A, B)
    assert killed(looks(machine, 3, paused="for good")) == [A, B]


def test_low_memory_gives_back_the_youngest_one_at_a_time() -> None:
    machine = owned(A, B, C)
    assert killed(looks(machine, 3, 0, memory=0)) == [C]
    assert machine.slots_offered == 2, "its slot is not offered again"
    assert killed(looks(machine, 3, 1, memory=0)) == [], "wait until the freed memory shows"
    assert killed(looks(machine, 3, 6, memory=0)) == [B]
    assert killed(looks(machine, 3, 20)) == []
    assert machine.slots_offered == 3


def test_no_new_attempt_is_taken_while_memory_is_short() -> None:
    machine = owned()
    looks(machine, 3, memory=0)
    assert machine.slots_offered == 0
    assert started(machine.happens(assigned(A))) == []
    assert machine.outcomes() == {A: (Outcome.GIVEN_BACK, "too little memory would be left to the owner")}


def test_running_attempts_continue_on_a_metered_network_without_successors() -> None:
    machine = owned(A, B)
    assert not looks(machine, 3, network="metered").todo[1:], "only a log entry"
    assert machine.slots_offered == 2
    assert started(machine.happens(assigned(A, B, C))) == []
    assert machine.outcomes() == {C: (Outcome.GIVEN_BACK, "metered")}
    looks(machine, 3)
    assert machine.slots_offered == 3


def test_no_attempt_starts_beside_a_frozen_one() -> None:
    machine = owned(A, B)
    looks(machine, 1)
    assert started(machine.happens(assigned(C))) == []
    assert machine.outcomes() == {C: (Outcome.GIVEN_BACK, "the owner's programs need the processor")}


def test_no_attempt_starts_while_more_run_than_allowed() -> None:
    machine = owned(A, B, grace_s=0.0)
    assert killed(looks(machine, 1)) == [B]
    steps = machine.happens(assigned(C), room=8)
    assert (started(steps), prefetched(steps)) == ([], []), (
        "the slot of a given-back attempt is occupied until it ends"
    )
    assert machine.waiting == [C]


def test_yield_time_is_recorded_when_all_are_frozen() -> None:
    machine = owned(A, B, preferences=OwnerPreferences(idle_s=60.0))
    signs = Signs(SLOTS, SLOTS, idle_s=0.0)
    steps = machine.happens(OwnerObserved(signs, input_at=4.5), after_s=5.0)
    assert (frozen(steps), machine.freezing) == ([A, B], 2)
    machine.happens(FreezeCompleted(A))
    assert frozen(machine.happens(OwnerObserved(signs, 4.5), after_s=0.25)) == [B], "it may still be running"
    steps = machine.happens(FreezeCompleted(B), after_s=0.25)
    assert steps.todo == [RecordPreemption("somebody is using this computer", 2, took_s=1.0, after_input=True)]
    assert steps.report is Urgency.NOW
    assert machine.freezing == 0


def test_unknown_presence_does_not_count_as_an_input() -> None:
    machine = owned(A, preferences=OwnerPreferences(idle_s=60.0))
    machine.happens(OwnerObserved(Signs(SLOTS, SLOTS, idle_s=None), input_at=0.0), after_s=5.0)
    (recorded,) = machine.happens(FreezeCompleted(A)).todo
    assert isinstance(recorded, RecordPreemption)
    assert (recorded.took_s, recorded.after_input) == (0.0, False)


def test_ended_and_thawed_attempts_do_not_delay_the_yield_time() -> None:
    machine = owned(A, B)
    looks(machine, 0)
    machine.ends(A)
    looks(machine, 1)
    assert machine.freezing == 0
    assert machine.state(B) is State.RUNNING


def test_successor_of_a_frozen_attempt_is_frozen() -> None:
    machine = owned(A, B, C)
    machine.happens(assigned(AttemptId(2, 1, 1)), room=1)
    follower = AttemptId(2, 1, 1)
    assert retracts(looks(machine, 2, 5))
    assert frozen(machine.happens(Followed(C, follower))) == [follower]
    assert machine.state(follower) is State.FROZEN
    assert frozen(looks(machine, 2, 6)) == [follower]
    assert killed(looks(machine, 2, 15)) == [follower], "it inherits the grace time of its predecessor"


def test_successor_of_a_given_back_attempt_is_given_back() -> None:
    machine = owned(A, B, C, grace_s=0.0)
    machine.happens(assigned(AttemptId(2, 1, 1)), room=1)
    assert killed(looks(machine, 2)) == [C]
    assert killed(machine.happens(Followed(C, AttemptId(2, 1, 1)))) == [AttemptId(2, 1, 1)]


def test_frozen_attempts_are_stopped_again_at_each_sample() -> None:
    machine = owned(A, B)
    looks(machine, 1)
    machine.happens(FreezeCompleted(B))
    assert frozen(machine.happens(DiskObserved())) == [B], "it may have a process forked during the freeze"


def test_nearly_full_disk_gives_back_the_youngest_one_at_a_time() -> None:
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


def test_obstacle_and_its_end_are_reported_at_once() -> None:
    machine = owned(A)
    assert machine.happens(DiskObserved("full")).report is Urgency.NOW
    assert machine.slots_offered == 0
    assert machine.happens(DiskObserved("full")).report is Urgency.NOT
    assert machine.happens(DiskObserved()).report is Urgency.NOW
    assert machine.slots_offered == 3


def test_trouble_ends_when_files_can_be_written_again() -> None:
    machine = owned(A)
    machine.happens(AttemptEnded(result(A, Outcome.GIVEN_BACK), trouble="no file descriptor left"))
    assert (machine.trouble, machine.slots_offered) == ("no file descriptor left", 0)
    machine.happens(DiskObserved())
    assert machine.slots_offered == 0
    machine.happens(DiskObserved(is_writable=True))
    assert (machine.trouble, machine.slots_offered) == ("", 3)


def test_stopping_worker_offers_no_slots_after_later_samples() -> None:
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
def test_running_attempts_fit_and_frozen_ones_do_not_in_any_order(story: list[tuple[object, ...]]) -> None:
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
