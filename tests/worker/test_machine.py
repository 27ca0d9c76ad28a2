"""The worker's machine alone: reports and instructions from event to event."""

from itertools import product

import pytest

from loopline_shared.model import AttemptId, Outcome, Output, OutputFile, Result
from loopline_shared.protocol.worker_link import MAX_RESULTS_PER_REPORT, Assign, Run
from loopline_worker.core.attempts import AttemptRecord, Attempts
from loopline_worker.core.events import (
    Assigned,
    AttemptEnded,
    Connected,
    Delivered,
    DiskObserved,
    Followed,
    LinkSilent,
    OwnerObserved,
    Restored,
    Retracted,
    Returned,
    Stopping,
    Welcomed,
    WriteFailed,
)
from loopline_worker.core.instructions import Deliver, Kill, Retract, Start, Urgency
from loopline_worker.core.owner_policy import OwnerPreferences, Policy, Signs
from loopline_worker.core.transitions import TRANSITIONS, State
from tests.worker.worker_machine import (
    A,
    B,
    C,
    Driver,
    assigned,
    killed,
    prefetched,
    result,
    retracts,
    run,
    started,
)

# States.


@pytest.mark.parametrize(("old", "new"), list(product(State, State)))
def test_only_transitions_of_the_table_are_possible(old: State, new: State) -> None:
    attempts, attempt = Attempts(), AttemptRecord(A, old, run(A))
    attempts.add(attempt)
    if new in TRANSITIONS[old]:
        attempts.move(attempt, new)
        assert attempt.state is new
    else:
        with pytest.raises(AssertionError, match=f"may not go from {old} to {new}"):
            attempts.move(attempt, new)


def test_every_state_can_be_entered_and_left() -> None:
    assert set(TRANSITIONS) == set(State)
    assert set().union(*TRANSITIONS.values()) == set(State)
    assert all(TRANSITIONS.values()), "even the last one: a session may break before it is acknowledged"


# From the Assign to the acknowledgement.


def test_attempt_passes_from_its_run_to_its_acknowledged_result() -> None:
    machine = Driver()
    assert not machine.has_news
    steps = machine.happens(assigned(A))
    assert (started(steps), steps.journal.began, steps.report) == ([A], [A], Urgency.SOON)
    assert machine.has_news
    assert not machine.has_results
    assert machine.reports(1) == ([A], [])
    steps = machine.ends(A)
    assert (steps.journal.results, steps.report) == ([result(A)], Urgency.NOW)
    assert machine.reports(2) == ([], [A])
    assert not machine.has_news
    assert machine.reports(3) == ([], [])
    assert machine.happens(assigned(seen=1)).journal.over == []
    assert not machine.is_idle
    assert machine.happens(assigned(seen=2)).journal.over == [A]
    assert machine.is_idle


def test_run_is_journalled_with_its_frame_before_it_starts() -> None:
    event = assigned(A)
    event.frame = b"as it came"
    assert Driver().happens(event).journal.came == [(event.assign, b"as it came")]
    assert Driver().happens(assigned(cancel=(A,))).journal.came == []


def test_run_of_a_known_attempt_is_ignored() -> None:
    machine = Driver()
    machine.restored(C)
    machine.happens(assigned(A, B))
    machine.ends(B)
    assert started(machine.happens(assigned(A, B, C))) == []
    machine.reports(1)
    assert started(machine.happens(assigned(A, B, C))) == []


def test_only_held_attempts_are_cancelled_and_only_once() -> None:
    machine = Driver()
    machine.restored(B)
    machine.happens(assigned(A))
    assert killed(machine.happens(assigned(cancel=(A, A, B, C)))) == [A]
    assert killed(machine.happens(assigned(cancel=(A,)))) == []
    assert machine.reports(1) == ([A], [B])


def test_cancel_of_an_unknown_attempt_makes_a_report_due() -> None:
    machine = Driver()
    assert machine.happens(assigned(cancel=(A,))).report is Urgency.SOON
    assert machine.has_news
    assert machine.reports(1) == ([], [])


def test_run_cancelled_in_the_same_assign_never_starts() -> None:
    machine = Driver()
    assert started(machine.happens(assigned(A, B, cancel=(A,)))) == [B]
    assert machine.inventory().holding == [B]


def test_new_session_sends_all_results_again_oldest_first() -> None:
    machine = Driver()
    machine.restored(A, B)
    machine.reports(1)
    machine.ends(C)
    machine.happens(Connected())
    steps = machine.happens(assigned(seen=1))
    assert steps.journal.over == [], "the master cannot mean a Report of this session"
    assert machine.reports(1) == ([], [A, B, C])


def test_attempt_with_an_unsent_result_is_still_held() -> None:
    attempts = [AttemptId(1, task, 1) for task in range(1, MAX_RESULTS_PER_REPORT + 3)]
    machine = Driver()
    machine.restored(*attempts)
    first, rest = attempts[:MAX_RESULTS_PER_REPORT], attempts[MAX_RESULTS_PER_REPORT:]
    assert machine.reports(1) == (rest, first)
    assert machine.has_results
    assert machine.reports(2) == ([], rest)


def test_number_of_files_in_a_report_is_limited() -> None:
    many = tuple(OutputFile(f"{n}", "a" * 64, 1) for n in range(9000))
    results = [Result(AttemptId(1, n, 1), Outcome.SUCCEEDED, 0, outputs=many) for n in range(5)]
    machine = Driver()
    machine.happens(Restored(results))
    machine.happens(*map(Delivered, results))
    inventory = machine.inventory()
    assert [each.attempt.task for each in inventory.results] == [0, 1], "at most 20,000 files"
    assert (inventory.holding, [attempt.task for attempt in inventory.delivering]) == ([], [2, 3, 4])


# Results that are not ready.

LONG = Result(A, Outcome.SUCCEEDED, 0, stdout=Output(9999, sha256="a" * 64))


def test_result_with_files_waits_until_the_master_has_them() -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A, B))
    steps = machine.happens(AttemptEnded(LONG))
    assert Deliver(LONG) in steps.todo
    assert started(steps) == [B], "its slot is free at once"
    assert (machine.inventory().holding, machine.inventory().delivering) == ([B], [A]), "it occupies no slot"
    assert machine.reports(1) == ([B, A], [])
    short = Result(A, Outcome.SUCCEEDED, 0)
    assert machine.happens(Delivered(short)).report is Urgency.NOW
    assert machine.inventory().results == [short], "as it was delivered"


def test_result_that_could_not_be_stored_is_not_sent() -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A, B, C))
    assert started(machine.ends(A)) == [B], "decided before the write"
    steps = machine.happens(WriteFailed([A], "no room"))
    assert Deliver(result(A)) in steps.todo
    assert (machine.slots_offered, machine.trouble) == (0, "no room")
    assert (machine.inventory().holding, machine.inventory().delivering) == ([B], [A])
    assert machine.outcomes() == {C: (Outcome.GIVEN_BACK, "no room")}
    machine.happens(DiskObserved(is_writable=True), Delivered(result(A)))
    assert machine.slots_offered == 1
    assert set(machine.outcomes()) == {A, C}


def test_restored_results_are_sent_and_running_attempts_given_back() -> None:
    machine = Driver()
    steps = machine.happens(Restored([LONG, result(B)], [C], agent_died=True))
    assert steps.todo == [Deliver(LONG)]
    assert (machine.inventory().holding, machine.inventory().delivering) == ([], [A])
    assert [(each.attempt, each.outcome, each.took_down) for each in machine.inventory().results] == [
        (B, Outcome.SUCCEEDED, False),
        (C, Outcome.GIVEN_BACK, True),
    ]
    machine.happens(Delivered(LONG))
    assert machine.reports(1) == ([], [B, C, A])


# Lives of the master's database.


def test_attempts_of_another_life_are_ended_and_never_reported() -> None:
    machine = Driver(slots=1)
    machine.restored(B)
    machine.happens(Welcomed("one"))
    machine.happens(assigned(A, C), Welcomed("one"))
    assert machine.reports(1) == ([A], [B])
    assert machine.life == "one"

    machine.happens(Connected())
    steps = machine.happens(Welcomed("two"))
    assert killed(steps) == [A]
    assert (steps.journal.life, set(steps.journal.over)) == ("two", {A, B, C})
    assert (machine.reports(1), machine.waiting, machine.life) == (([], []), [], "two")

    assert started(machine.happens(assigned(A, B))) == [], "the old attempt of that name is still in its slot"
    steps = machine.happens(AttemptEnded(LONG))
    assert Deliver(LONG) not in steps.todo
    assert A in steps.journal.over
    assert started(steps) == [B]
    assert machine.reports(2) == ([B], [])
    machine.ends(B)
    assert started(machine.happens(assigned(A))) == [A], "sent again, because no Report named it"


@pytest.mark.parametrize(("known", "said"), [("", "one"), ("one", "one")])
def test_attempts_are_kept_if_no_other_life_is_known(known: str, said: str) -> None:
    machine = Driver()
    machine.happens(Restored([result(B)], life=known))
    machine.happens(assigned(A), Welcomed(said))
    assert machine.reports(1) == ([A], [B])
    assert machine.life == "one"


# What waits for a slot.


def test_runs_beyond_the_slots_start_in_order_of_arrival() -> None:
    machine = Driver(slots=1)
    assert started(machine.happens(assigned(B, A, C))) == [B]
    assert machine.waiting == [A, C]
    assert machine.inventory().holding == [B]
    assert started(machine.ends(B)) == [A]
    assert started(machine.ends(A)) == [C]


def test_simultaneous_results_and_their_successors_share_one_journal_entry() -> None:
    machine = Driver(slots=2)
    machine.happens(assigned(A, B, C))
    steps = machine.ends(A, B)
    assert (steps.journal.results, steps.journal.began, started(steps)) == ([result(A), result(B)], [C], [C])


def test_run_of_several_slots_is_passed_by_a_smaller_one() -> None:
    machine = Driver(slots=2)
    machine.happens(assigned(A))
    assert started(machine.happens(assigned(run(B, slots=2), C, seen=1))) == [C]
    assert started(machine.ends(A)) == []
    assert started(machine.ends(C)) == [B]


def test_run_that_needs_more_slots_than_exist_is_given_back() -> None:
    machine = Driver(slots=2)
    machine.happens(assigned(run(A, slots=3)))
    assert machine.outcomes() == {A: (Outcome.GIVEN_BACK, "")}


def test_each_step_returns_idle_slots_business_and_trouble() -> None:
    machine = Driver(slots=3)
    steps = machine.happens(assigned(run(A, slots=2), run(B, slots=2)))
    assert (steps.idle_slots, steps.is_busy, steps.trouble) == (1, True, "")
    steps = machine.happens(AttemptEnded(result(A), trouble="no room"))
    assert (steps.idle_slots, steps.is_busy, steps.trouble) == (3, False, "no room")


def test_waiting_attempt_is_dropped_at_once_when_cancelled() -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A, B))
    steps = machine.happens(assigned(cancel=(B,)))
    assert (killed(steps), steps.report) == ([], Urgency.NOW)
    assert machine.inventory().holding == [A]
    assert machine.outcomes() == {B: (Outcome.CANCELLED, "")}


def test_waiting_attempts_are_given_back_with_a_reason() -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A, B, C))
    machine.happens(DiskObserved("the disk is full"))
    given_back = (Outcome.GIVEN_BACK, "the disk is full")
    assert machine.outcomes() == {B: given_back, C: given_back}
    assert machine.inventory().holding == [A], "it keeps running"


def test_restored_queue_waits_until_the_master_knows_of_it() -> None:
    machine = Driver(slots=2)
    assert started(machine.restored(waiting=(A, B))) == []
    machine.happens(Connected())
    assert started(machine.happens(assigned(C))) == [C], "a new run may start at once"
    machine.ends(C)
    assert started(machine.happens(assigned(cancel=(A,), seen=1))) == [B]
    assert machine.waiting == []


@pytest.mark.parametrize("event", [Connected(), LinkSilent()])
def test_waiting_attempts_do_not_start_until_the_master_answers(event: Connected | LinkSilent) -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A, B))
    machine.happens(event)
    assert started(machine.ends(A)) == []
    assert started(machine.happens(assigned(seen=1))) == [B]


# Prefetched attempts.


def with_prefetched(*attempts: AttemptId, slots: int = 1) -> Driver:
    """A machine that runs A, and has prefetched these at its supervisor."""
    machine = Driver(slots=slots)
    machine.happens(assigned(A))
    steps = machine.happens(assigned(B, C), room=len(attempts))
    assert prefetched(steps) == steps.journal.began == list(attempts)
    return machine


def test_prefetched_attempt_takes_the_slot_of_an_ended_one() -> None:
    machine = with_prefetched(B)
    assert (machine.waiting, machine.inventory().holding) == ([B, C], [A]), "it is not known to have started"
    machine.happens(Followed(A, B))
    inventory = machine.inventory()
    assert (machine.waiting, inventory.holding, inventory.delivering) == ([C], [B], [A]), (
        "the result of A will follow"
    )
    assert started(machine.ends(A)) == [], "no slot is free"
    assert started(machine.ends(B)) == [C]


def test_returned_attempts_wait_before_all_others() -> None:
    machine = with_prefetched(B, C)
    machine.happens(Returned([C, B]))
    assert machine.waiting == [B, C], "in order of arrival"
    assert started(machine.ends(A)) == [B]


def test_free_slot_first_starts_attempts_prefetched_elsewhere() -> None:
    machine = with_prefetched(B)
    steps = machine.ends(A)
    assert retracts(steps)
    assert started(steps) == []
    assert started(machine.retracted(B)) == [B]
    assert machine.waiting == [C]


def test_attempt_not_returned_by_a_retract_has_started() -> None:
    other = AttemptId(2, 1, 1)
    machine = Driver(slots=2)
    machine.happens(assigned(A, other))
    machine.happens(assigned(B, C), room=1)
    machine.ends(A)
    assert started(machine.retracted()) == [C], "B has started in the place of A, and a slot is free"
    assert machine.state(B) is State.PREFETCHED, "until that is reported"
    machine.happens(Followed(other, B))
    assert machine.attempts.taken == 2


def test_no_attempt_starts_until_a_retract_is_answered() -> None:
    machine = with_prefetched(B)
    machine.ends(A)
    steps = machine.happens(assigned(AttemptId(2, 1, 1)))
    assert not retracts(steps), "once is enough"
    assert started(steps) == []
    assert started(machine.happens(Returned([B]))) == [], "it may be the answer of one of several supervisors"
    assert started(machine.happens(Retracted())) == [B]


def test_prefetched_attempt_cancelled_before_its_start_never_runs() -> None:
    machine = with_prefetched(B)
    steps = machine.happens(assigned(cancel=(B,)))
    assert steps.todo[0] == Retract(), "retract first: a kill may be unnecessary"
    assert killed(steps) == [B], "it may be running already"
    machine.retracted(B)
    assert machine.outcomes() == {B: (Outcome.CANCELLED, "")}


def test_prefetched_attempt_cancelled_as_it_starts_is_killed() -> None:
    machine = with_prefetched(B)
    machine.happens(assigned(cancel=(B,)))
    machine.happens(Retracted(), Followed(A, B))
    assert machine.state(B) is State.ENDING
    assert started(machine.ends(A)) == [], "it occupies the slot until it has ended"
    assert started(machine.happens(AttemptEnded(result(B, Outcome.CANCELLED)))) == [C]


def test_prefetched_attempt_is_given_back_only_after_its_retract() -> None:
    machine = with_prefetched(B)
    steps = machine.happens(DiskObserved("full"))
    assert retracts(steps)
    assert set(machine.outcomes()) == {C}
    machine.retracted(B)
    assert set(machine.outcomes()) == {C, B}


def test_start_of_an_attempt_is_unknown_if_its_supervisor_was_lost() -> None:
    machine = with_prefetched(B)
    machine.happens(AttemptEnded(result(B, Outcome.GIVEN_BACK)))
    assert set(machine.outcomes()) == {B}
    assert machine.inventory().holding == [A]


@pytest.mark.parametrize("event", [Connected(), LinkSilent()])
def test_prefetched_attempts_are_retracted_when_the_link_breaks(
    event: Connected | LinkSilent,
) -> None:
    machine = with_prefetched(B)
    assert retracts(machine.happens(event))
    machine.retracted(B)
    assert started(machine.ends(A)) == []
    assert started(machine.happens(assigned(seen=1))) == [B]


def test_no_attempt_is_prefetched_if_a_slot_is_free() -> None:
    machine = Driver(slots=2)
    assert prefetched(machine.happens(assigned(run(A, slots=2), B), room=8)) == []
    machine = Driver(slots=2)
    assert prefetched(machine.happens(assigned(A, run(B, slots=2)), room=8)) == []


@pytest.mark.parametrize(
    "other",
    [run(B, slots=2), Run(B, ("true",), {}, {}, outputs=("result",)), Run(B, ("true",), {}, {}, inputs="a" * 64)],
)
def test_only_single_slot_attempts_are_prefetched_in_order(other: Run) -> None:
    machine = Driver(slots=2)
    machine.happens(assigned(A, AttemptId(1, 9, 1)))
    assert prefetched(machine.happens(assigned(other, C), room=8)) == []


def test_prefetching_is_limited_by_the_room_at_supervisors() -> None:
    machine = Driver(slots=1)
    assert prefetched(machine.happens(assigned(A, B, C), room=1)) == [B]


# The end.


def test_stopping_gives_back_all_attempts_including_later_starts() -> None:
    machine = with_prefetched(B)
    steps = machine.happens(Stopping("the worker was stopped"))
    assert (killed(steps), retracts(steps), machine.slots_offered) == ([A], True, 0)
    steps = machine.happens(Retracted(), Followed(A, B))
    assert killed(steps) == [B]
    machine.happens(assigned(AttemptId(2, 1, 1)))
    assert machine.outcomes()[AttemptId(2, 1, 1)] == (Outcome.GIVEN_BACK, "the worker was stopped")


@pytest.mark.parametrize(("code", "outcome"), [(-15, Outcome.GIVEN_BACK), (3, Outcome.FAILED)])
def test_attempt_ended_by_the_workers_stop_signal_is_given_back(code: int, outcome: Outcome) -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A))
    machine.happens(Stopping("the worker was stopped"), AttemptEnded(Result(A, Outcome.FAILED, code)))
    assert machine.outcomes()[A][0] is outcome


def test_cancel_is_gentle_for_running_attempts_on_request() -> None:
    machine = Driver(slots=2)
    machine.happens(assigned(A, B, C))
    steps = machine.happens(Assigned(Assign(2, 0, cancel=(A, B, C), gently=(A, C))))
    assert Kill(A, Outcome.CANCELLED, gently=True) in steps.todo
    assert Kill(B, Outcome.CANCELLED) in steps.todo
    assert machine.outcomes() == {C: (Outcome.CANCELLED, "")}, "it was only waiting"


def test_owner_does_not_wait_for_tasks_that_end_gently() -> None:
    machine = Driver(slots=2, preferences=OwnerPreferences(Policy.WHEN_IDLE, on_battery=True))
    machine.happens(OwnerObserved(Signs(2.0, 2.0, idle_s=1e6), 0.0), assigned(A, B))
    steps = machine.happens(Assigned(Assign(2, 0, cancel=(A,), gently=(A,))))
    assert Kill(A, Outcome.CANCELLED, gently=True) in steps.todo
    steps = machine.happens(OwnerObserved(Signs(2.0, 2.0, idle_s=0.0), 0.0))
    assert Kill(A, Outcome.CANCELLED) in steps.todo
    assert Kill(A, Outcome.CANCELLED) not in machine.happens(OwnerObserved(Signs(2.0, 2.0, idle_s=0.0), 0.0)).todo


def test_stopping_ends_tasks_gently() -> None:
    machine = Driver(slots=1)
    machine.happens(assigned(A))
    steps = machine.happens(Stopping("the worker was stopped"))
    assert Kill(A, Outcome.GIVEN_BACK, "the worker was stopped", gently=True) in steps.todo


# Numbers of slots.


def test_attempt_gets_the_lowest_free_slot_or_its_predecessors() -> None:
    a, b, c = (AttemptRecord(attempt, State.WAITING, run(attempt)) for attempt in (A, B, C))
    wide = AttemptRecord(AttemptId(9, 9, 9), State.WAITING, run(AttemptId(9, 9, 9), slots=2))
    attempts = Attempts()
    for attempt in (a, b):
        attempts.occupy(attempt)
    assert (a.slot, b.slot) == (1, 2)
    attempts.free(a)
    attempts.succeed(b, c)
    assert (a.slot, b.slot, c.slot) == (0, 0, 2)
    attempts.occupy(wide)
    assert (wide.slot_numbers, attempts.taken) == ((1, 3), 3)


def test_start_instruction_has_the_slot() -> None:
    machine = Driver(3)
    assert [step.slot for step in machine.happens(assigned(A, B)).todo if isinstance(step, Start)] == [1, 2]
    machine.happens(AttemptEnded(result(A)))
    assert [step.slot for step in machine.happens(assigned(C)).todo if isinstance(step, Start)] == [1]
