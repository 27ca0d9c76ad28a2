"""Which attempts run, stand frozen or are given back. Pure."""

from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.model import AttemptId
from loopline_worker.core.owner_policy import Consent
from loopline_worker.core.preemption import Ladder, Steps

A, B, C = (AttemptId(1, task, 1) for task in (1, 2, 3))
ALL, TWO, ONE, NONE = (Consent(slots) for slots in (3, 2, 1, 0))


def ladder_with(*attempts: AttemptId, slots: int = 1, grace_s: float = 10.0) -> Ladder:
    ladder = Ladder(grace_s)
    for attempt in attempts:
        ladder.took(attempt, slots)
    return ladder


def test_frozen_when_the_owner_comes_and_thawed_when_the_owner_leaves() -> None:
    ladder = ladder_with(A, B)
    assert ladder.step(ALL, 0) == Steps()
    assert ladder.step(NONE, 1) == Steps(freeze=(A, B))
    assert (ladder.slots_at_work, ladder.slots_in_hand) == (0, 2)
    assert ladder.step(NONE, 2) == Steps()
    assert ladder.step(ALL, 9) == Steps(thaw=(A, B))
    assert ladder.step(NONE, 18) == Steps(freeze=(A, B))  # a new grace time
    assert ladder.step(NONE, 27.9) == Steps()
    assert ladder.step(NONE, 28) == Steps(give_back=(A, B))
    assert ladder.slots_in_hand == 0
    assert ladder.step(ALL, 99) == Steps()


def test_the_youngest_stand_still_first_and_go_on_last() -> None:
    ladder = ladder_with(A, B, C)
    assert ladder.step(TWO, 0) == Steps(freeze=(C,))
    assert ladder.step(ONE, 1) == Steps(freeze=(B,))
    assert ladder.step(TWO, 2) == Steps(thaw=(B,))
    assert ladder.step(TWO, 10) == Steps(give_back=(C,))


def test_what_ends_makes_room() -> None:
    ladder = ladder_with(A, B)
    ladder.step(ONE, 0)
    assert not ladder.has_room(1, allowed=2)
    ladder.ended(A)
    assert ladder.step(ONE, 1) == Steps(thaw=(B,))
    assert ladder.has_room(1, allowed=2)


def test_a_wide_attempt_needs_all_its_slots() -> None:
    ladder = Ladder(10)
    ladder.took(A, 3)
    ladder.took(B, 1)
    assert ladder.step(TWO, 0) == Steps(freeze=(A,))
    assert ladder.step(Consent(4), 1) == Steps(thaw=(A,))


def test_a_pause_gives_back_at_once() -> None:
    ladder = ladder_with(A, B)
    assert ladder.step(Consent(0, "paused", at_once=True), 0) == Steps(give_back=(A, B))


def test_for_want_of_memory_the_youngest_is_given_back_one_at_a_time() -> None:
    ladder, short = ladder_with(A, B, C), Consent(3, "memory", short_of_memory=True)
    assert ladder.step(short, 0) == Steps(give_back=(C,))
    assert ladder.step(short, 1) == Steps()  # until it shows
    assert ladder.step(short, 6) == Steps(give_back=(B,))
    assert ladder.step(ALL, 20) == Steps()


attempts = st.builds(AttemptId, st.just(1), st.integers(1, 6), st.just(1))
happenings = st.one_of(
    st.tuples(st.just("took"), attempts, st.integers(1, 3)),
    st.tuples(st.just("ended"), attempts),
    st.tuples(st.just("step"), st.integers(0, 6), st.floats(0, 20), st.booleans(), st.booleans()),
)


@given(st.lists(happenings, max_size=60))
def test_in_any_order_what_runs_fits_and_what_stands_still_does_not(story: list[tuple[object, ...]]) -> None:
    """Against a model that knows of each attempt whether it runs or since when it stands."""
    ladder, now = Ladder(10.0), 0.0
    model: dict[AttemptId, tuple[int, float | None]] = {}
    for what, *given_ in story:
        if what == "took":
            attempt, width = given_
            if attempt not in model:
                ladder.took(attempt, width)
                model[attempt] = (width, None)
        elif what == "ended":
            ladder.ended(given_[0])
            model.pop(given_[0], None)
        else:
            allowed, passed, at_once, short = given_
            now += passed
            steps = ladder.step(Consent(allowed, "", at_once, short), now)
            for attempt in steps.freeze:
                assert model[attempt][1] is None
                model[attempt] = (model[attempt][0], now)
            for attempt in steps.thaw:
                assert model[attempt][1] is not None
                model[attempt] = (model[attempt][0], None)
            for attempt in steps.give_back:
                since = model.pop(attempt)[1]
                assert at_once or short or (since is not None and now - since >= 10.0)
            running = [width for width, since in model.values() if since is None]
            frozen = [width for width, since in model.values() if since is not None]
            assert sum(running) <= allowed
            if not (short or at_once):
                assert all(width > allowed - sum(running) for width in frozen)
                assert all(now - since < 10.0 for _, since in model.values() if since is not None)
        assert ladder.slots_in_hand == sum(width for width, _ in model.values())
        assert ladder.slots_at_work == sum(width for width, since in model.values() if since is None)
