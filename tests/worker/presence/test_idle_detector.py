"""The decision from the probes' answers, as a pure function."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_worker.presence.idle_detector import IdleDetector, InputClock, judge
from loopline_worker.presence.macos import MacOS
from loopline_worker.presence.probe import Reading
from loopline_worker.presence.windows_input import SessionInfo, Windows, session_idle_s, tick_idle_s
from loopline_worker.task_group import TaskGroup
from tests.worker.presence.witnesses import Hand

readings = st.lists(st.builds(Reading, st.sampled_from("abc"), st.none() | st.floats(0, 1e6), st.booleans()))


@given(readings)
def test_least_idle_answer_wins_and_no_answer_means_in_use(answers: list[Reading]) -> None:
    idleness = judge(answers)
    known = [reading.idle_s for reading in answers if reading.idle_s is not None]
    vouched = any(reading.sees_desktop and reading.idle_s is not None for reading in answers)
    assert idleness.idle_s == (min(known) if vouched else None)
    assert idleness.certain_idle_s == (idleness.idle_s or 0)


def test_no_probe_at_all_means_in_use() -> None:
    assert judge([]).idle_s is None


def test_terminals_alone_cannot_vouch_for_a_desktop() -> None:
    terminals = Reading("terminals", 9999.0)
    assert judge([terminals]).idle_s is None
    assert judge([terminals, Reading("x11", 5.0, sees_desktop=True)]).idle_s == 5.0
    assert judge([Reading("terminals", 1.0), Reading("x11", 5.0, sees_desktop=True)]).by == "terminals"


def test_input_is_dated_after_the_last_reading_without_it() -> None:
    clock = InputClock()
    assert clock.looked(100.0, now=1000.0) == 900.0
    assert clock.looked(0.3, now=1000.5) == 1000.2
    assert clock.looked(0.9, now=1001.0) == 1000.5  # a probe with a resolution of seconds
    assert clock.looked(30.0, now=1002.0) == 972.0
    assert clock.looked(1.5, now=1002.1, is_fresh=False) == pytest.approx(1000.6)  # cached: no reading in between


def test_first_input_of_a_moving_mouse_is_dated_between_two_readings() -> None:
    clock = InputClock()
    clock.looked(100.0, now=1000.0)
    assert clock.looked(0.0, now=1000.4) == pytest.approx(1000.2), "a late agent does not seem quick"
    assert clock.looked(0.1, now=1000.8) == pytest.approx(1000.7), "a single input"
    assert clock.looked(0.0, now=1001.0, is_notified=True) == 1001.0


def test_reading_says_whether_it_is_fresh() -> None:
    assert judge([Reading("x11", 5.0, sees_desktop=True)]).is_fresh
    assert not judge([Reading("gnome", 5.0, sees_desktop=True, is_fresh=False)]).is_fresh


async def test_detector_reads_its_probes() -> None:
    hand = Hand(3.0)
    detector = IdleDetector([hand, Hand(None)])
    async with TaskGroup() as task_group:
        detector.listen(task_group)
        await asyncio.sleep(0)
    assert (detector.look().idle_s, detector.look().by) == (3.0, "hand")
    hand.idle_s = None
    assert detector.look().idle_s is None
    detector.close()


def test_tick_counter_of_windows_wraps_around() -> None:
    assert tick_idle_s(5000, 2000) == 3.0
    assert tick_idle_s(500, 2**32 - 500) == 1.0


def test_windows_session_without_a_state_counts_as_in_use() -> None:
    assert session_idle_s(SessionInfo(last_input=10**7, now=5 * 10**7)) == 4.0
    assert session_idle_s(SessionInfo(last_input=0, now=5 * 10**7)) == 0.0


@pytest.mark.parametrize("probe", [Windows(), MacOS()], ids=["windows", "macos"])
def test_probe_of_another_system_has_no_answer(probe: Windows | MacOS) -> None:
    assert probe.look().idle_s is None
    assert probe.look().detail
