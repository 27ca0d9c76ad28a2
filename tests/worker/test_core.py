"""The core alone: what it says, what it asks for, and that no order of events breaks it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.model import AttemptId, Outcome, Result
from shared.protocol.messages import MAX_RESULTS_PER_REPORT, Assign, Run
from worker.core import Core, Instructions

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
