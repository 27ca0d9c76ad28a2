"""The core alone: what it says, what it asks for, and that no order of events breaks it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.messages import MAX_RESULTS_PER_REPORT, Assign, Run
from loopline_worker.core.core import Core, Instructions

A, B, C = (AttemptId(1, task, 1) for task in (1, 2, 3))


def run(attempt: AttemptId) -> Run:
    return Run(attempt, ("true",), {}, {})


def result(attempt: AttemptId) -> Result:
    return Result(attempt, Outcome.SUCCEEDED, 0)


def assign(*runs: AttemptId, cancel: tuple[AttemptId, ...] = (), seen: int = 0) -> Assign:
    return Assign(1, seen, tuple(run(attempt) for attempt in runs), cancel)


def report(core: Core, seq: int) -> tuple[tuple[AttemptId, ...], tuple[AttemptId, ...]]:
    holding, results = core.to_report()
    core.reported(seq, results)
    return holding, tuple(result.attempt for result in results)


def test_an_attempt_from_its_run_until_the_master_has_its_result() -> None:
    core = Core()
    assert not core.has_news
    assert core.assigned(assign(A)) == Instructions(start=(run(A),))
    assert core.has_news
    assert not core.has_results
    assert report(core, 1) == ((A,), ())
    core.ended(result(A))
    assert core.has_results
    assert report(core, 2) == ((), (A,))
    assert not core.has_news
    assert report(core, 3) == ((), ())
    assert core.assigned(assign(seen=1)) == Instructions()
    assert not core.is_idle
    assert core.assigned(assign(seen=2)) == Instructions(forget=(A,))
    assert core.is_idle


def test_a_run_of_what_is_known_is_ignored() -> None:
    core = Core([result(C)])
    core.assigned(assign(A, B))
    core.ended(result(B))
    assert core.assigned(assign(A, B, C)) == Instructions()
    report(core, 1)
    assert core.assigned(assign(A, B, C)) == Instructions()


def test_only_what_is_held_is_cancelled_and_only_once() -> None:
    core = Core([result(B)])
    core.assigned(assign(A))
    assert core.assigned(assign(cancel=(A, A, B, C))) == Instructions(cancel=(A,))
    assert report(core, 1) == ((A,), (B,))


def test_a_cancel_of_the_unknown_makes_a_report_due_that_says_so() -> None:
    core = Core()
    core.assigned(assign(cancel=(A,)))
    assert core.has_news
    assert report(core, 1) == ((), ())


def test_what_one_assign_runs_and_cancels_never_starts() -> None:
    core = Core()
    assert core.assigned(assign(A, B, cancel=(A,))).start == (run(B),)
    assert core.to_report()[0] == (B,)


def test_a_new_session_sends_every_result_again_oldest_first() -> None:
    core = Core([result(A), result(B)])
    report(core, 1)
    core.ended(result(C))
    core.connected()
    assert core.assigned(assign(seen=1)) == Instructions()  # the master cannot mean a Report of this session
    assert report(core, 1) == ((), (A, B, C))


def test_an_attempt_whose_result_has_to_wait_is_still_in_hand() -> None:
    attempts = [AttemptId(1, task, 1) for task in range(1, MAX_RESULTS_PER_REPORT + 3)]
    core = Core(result(attempt) for attempt in attempts)
    first, rest = attempts[:MAX_RESULTS_PER_REPORT], attempts[MAX_RESULTS_PER_REPORT:]
    assert report(core, 1) == (tuple(rest), tuple(first))
    assert core.has_results
    assert report(core, 2) == ((), tuple(rest))


def test_a_held_attempt_restored_from_the_spool_becomes_a_result() -> None:
    core = Core([result(A)], held=[A, B])
    assert core.to_report()[0] == (B,)
    core.ended(result(B))
    assert report(core, 1) == ((), (A, B))


attempts = st.builds(AttemptId, st.just(1), st.integers(1, 4), st.just(1))
happenings = st.one_of(
    st.tuples(st.just("assign"), st.lists(attempts), st.lists(attempts, max_size=2), st.integers(0, 9)),
    st.tuples(st.just("ended"), attempts),
    st.just(("reported",)),
    st.just(("connected",)),
)


@given(st.sets(attempts), st.sets(attempts), st.lists(happenings, max_size=40))
def test_in_any_order_nothing_is_lost_doubled_or_started_twice(
    restored: set[AttemptId], unfinished: set[AttemptId], story: list[tuple[Any, ...]]
) -> None:
    """Against a model that writes down, for each attempt, only whether it is held or when its result was sent."""
    core = Core([result(attempt) for attempt in restored], unfinished)
    held, sent = unfinished - restored, dict.fromkeys(restored, 0)
    seq = 0
    for what, *given_ in story:
        if what == "assign":
            runs, cancel, seen = given_
            todo = core.assigned(assign(*runs, cancel=tuple(cancel), seen=seen))
            forgotten = {attempt for attempt, at in sent.items() if 0 < at <= seen}
            sent = {attempt: at for attempt, at in sent.items() if attempt not in forgotten}
            assert set(todo.forget) == forgotten
            assert set(todo.cancel) == held & set(cancel)
            assert {run.attempt for run in todo.start} == set(runs) - held - sent.keys() - set(cancel)
            held |= {run.attempt for run in todo.start}
        elif what == "ended":
            core.ended(result(*given_))
            held -= {*given_}
            sent.setdefault(given_[0], 0)
        elif what == "reported":
            seq += 1
            holding, results = report(core, seq)
            assert set(holding) == held
            assert set(results) == {attempt for attempt, at in sent.items() if at == 0}
            sent = {attempt: at or seq for attempt, at in sent.items()}
        else:
            core.connected()
            seq, sent = 0, dict.fromkeys(sent, 0)
        assert core.is_idle == (not held and not sent)
        assert core.has_results == (0 in sent.values())


# What waits for a slot.


def begun(runs: tuple[Run, ...]) -> list[AttemptId]:
    return [run.attempt for run in runs]


def test_runs_beyond_the_slots_begin_in_the_order_in_which_they_came() -> None:
    core = Core(slots=1)
    assert begun(core.assigned(assign(B, A, C)).start) == [B]
    assert core.waiting == (A, C)
    assert (*core.to_report()[0], *core.waiting) == (B, A, C)
    assert begun(core.left(B)) == [A], "its result is not ready yet, but nothing of it runs"
    assert core.ended(result(B)) == (), "its slot was free already"
    assert begun(core.ended(result(A))) == [C]


def test_one_that_needs_more_slots_than_are_free_is_passed_by_one_that_does_not() -> None:
    core = Core(slots=2)
    wide = Run(B, ("true",), {}, {}, slots=2)
    core.assigned(assign(A))
    assert begun(core.assigned(Assign(2, 1, (wide, run(C)))).start) == [C]
    assert core.ended(result(A)) == ()
    assert begun(core.ended(result(C))) == [B]


def test_a_cancel_drops_what_waits_at_once_and_says_so() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B))
    assert core.assigned(assign(cancel=(B,))) == Instructions()
    assert core.has_results
    holding, results = core.to_report()
    assert (holding, [(r.attempt, r.outcome) for r in results]) == ((A,), [(B, Outcome.CANCELLED)])


def test_what_waits_is_given_back_with_a_reason() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B, C))
    assert core.give_back("somebody came") == (B, C)
    assert [(r.attempt, r.outcome, r.reason) for r in core.to_report()[1]] == [
        (B, Outcome.GIVEN_BACK, "somebody came"),
        (C, Outcome.GIVEN_BACK, "somebody came"),
    ]


def test_what_an_earlier_agent_left_waits_until_the_master_has_heard_of_it() -> None:
    core = Core(waiting=[run(A), run(B)], slots=2)
    assert core.allow(2) == ()
    core.connected()
    assert begun(core.assigned(assign(C)).start) == [C], "what comes now is wanted now"
    core.ended(result(C))
    assert core.assigned(assign(cancel=(A,), seen=1)).start == (run(B),)
    assert core.waiting == ()


def test_a_new_link_asks_again_whether_what_waits_is_still_wanted() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B))
    core.connected()
    assert core.ended(result(A)) == ()
    assert begun(core.assigned(assign(seen=1)).start) == [B]


# What is lined up.


def test_what_is_lined_up_takes_the_place_of_what_has_ended() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B, C))
    assert begun(core.line_up(1)) == [B]
    assert (core.waiting, core.to_report()[0]) == ((B, C), (A,)), "it has not begun, as far as is known"
    assert core.followed(A, B) == run(B)
    assert (core.waiting, core.to_report()[0]) == ((C,), (A, B)), "the result of the other is still on its way"
    assert core.ended(result(A)) == (), "no slot is free"
    assert begun(core.ended(result(B))) == [C]


def test_what_is_returned_waits_before_all_others() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B, C))
    core.line_up(2)
    core.returned([C, B])
    assert core.waiting == (B, C), "as they came"
    assert begun(core.ended(result(A))) == [B]


def test_where_slots_are_free_what_is_lined_up_elsewhere_begins_first() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B))
    core.line_up(1)
    assert not core.is_uneven
    assert core.allow(2) == core.assigned(assign(C)).start == ()
    assert core.is_uneven, "to be recalled"
    core.returned([B])
    assert begun(core.recalled()) == [B]
    assert not core.is_uneven


def test_what_is_lined_up_is_cancelled_by_who_has_it_and_not_given_back() -> None:
    core = Core(slots=1)
    core.assigned(assign(A, B, C))
    core.line_up(1)
    assert core.give_back("somebody came") == (C,)
    assert core.assigned(assign(cancel=(B,))).cancel == (B,), "it may run by now"
    assert core.ended(Result(B, Outcome.CANCELLED)) == ()
    assert core.waiting == ()
    assert [each.attempt for each in core.to_report()[1]] == [C, B]


def test_nothing_is_lined_up_where_more_run_than_are_allowed() -> None:
    core = Core(slots=2)
    core.assigned(assign(A, B, C))
    core.allow(1)
    assert core.line_up(1) == ()


def test_only_processes_of_one_slot_are_lined_up_and_none_passes_another() -> None:
    wide, with_file = Run(B, ("true",), {}, {}, slots=2), Run(B, ("true",), {}, {}, outputs=("result",))
    for other in (wide, with_file):
        core = Core(slots=1)
        core.assigned(Assign(1, 0, (run(A), other, run(C))))
        assert core.line_up(8) == ()
    core = Core(slots=2)
    core.assigned(Assign(1, 0, (wide, run(A))))
    assert core.line_up(8) == (), "its place is too wide for one"


tales = st.lists(
    st.one_of(
        st.tuples(
            st.just("assign"), st.lists(attempts, unique=True), st.lists(attempts, max_size=2), st.integers(0, 2)
        ),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.integers(0, 3)),
        st.tuples(st.just("allow"), st.integers(0, 3)),
        st.tuples(st.just("give back")),
        st.tuples(st.just("connected")),
        st.tuples(st.just("line up"), st.integers(0, 3)),
        st.tuples(st.just("follow"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("return"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(st.integers(1, 3), tales)
def test_in_any_order_no_more_run_than_fit_and_none_is_passed_by_a_later_one(  # noqa: C901
    slots: int, tale: list[tuple[Any, ...]]
) -> None:
    core, came, running, gone = Core(slots=slots), list[AttemptId](), dict[AttemptId, int](), set[AttemptId]()
    doubted, lined_up = set[AttemptId](), list[AttemptId]()
    for what, *given_ in tale:
        new: tuple[Run, ...] = ()
        if what == "assign":
            runs, cancel, seen = given_
            waiting = set(core.waiting)
            todo = core.assigned(assign(*runs, cancel=tuple(cancel), seen=seen))
            fresh = [a for a in runs if a not in running and a not in waiting and a not in gone and a not in cancel]
            came += fresh
            assert set(todo.cancel) == (running.keys() | set(lined_up)) & set(cancel)
            gone |= (waiting - set(lined_up)) & set(cancel)
            doubted = set() if seen else doubted
            new = todo.start
        elif what in ("end", "leave") and running:
            attempt = list(running)[given_[0] % len(running)]
            if what == "leave":
                running[attempt] = 0
                new = core.left(attempt)
            else:
                del running[attempt]
                gone.add(attempt)
                new = core.ended(result(attempt))
        elif what == "allow":
            slots = given_[0]
            new = core.allow(slots)
        elif what == "give back":
            gone |= set(core.give_back("so"))
        elif what == "connected":
            core.connected()
            doubted = set(core.waiting) - set(lined_up)
        elif what == "line up":
            ahead = begun(core.line_up(given_[0]))
            assert not ahead or sum(running.values()) == slots, "no slot is free, and none too many is taken up"
            assert not doubted & set(ahead)
            lined_up += ahead
        elif what == "follow" and lined_up and 1 in running.values():
            at_work = [attempt for attempt, width in running.items() if width]
            before, after = at_work[given_[0] % len(at_work)], lined_up.pop(given_[1] % len(lined_up))
            core.followed(before, after)
            running |= {before: 0, after: 1}
        elif what == "return":
            core.returned(lined_up[: given_[0] - 1 if given_[0] else None : -1])
            del lined_up[given_[0] :]
        for each in begun(new):
            assert each not in running
            assert each not in gone
            assert each not in doubted
            assert each not in lined_up
            running[each] = 1
        if new:
            assert not lined_up, "which came earlier"
            assert sum(running.values()) <= slots
        waiting_now = [a for a in came if a in core.waiting]
        assert list(core.waiting) == waiting_now, "in the order in which they came"
        assert set(core.to_report()[0]) == running.keys()
