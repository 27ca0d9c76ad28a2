"""Virtual time: nothing but the calls decides what comes next."""

import math

import pytest

from loopline_simulator.kernel import Kernel


def test_calls_come_in_the_order_of_their_time_and_those_of_one_moment_as_they_were_made() -> None:
    kernel, heard = Kernel(), []
    for time, name in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        kernel.at(time, lambda name=name: heard.append((kernel.now, name)))
    kernel.run()
    assert heard == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]
    assert kernel.events == 4


def test_a_cancelled_call_is_not_made_and_moves_no_clock() -> None:
    kernel, heard = Kernel(), []
    kernel.at(1.0, lambda: heard.append(1))
    kernel.at(9.0, lambda: heard.append(9)).cancel()
    kernel.run()
    assert (heard, kernel.now, kernel.events) == ([1], 1.0, 1)


def test_kernel_runs_until_a_moment_and_continues_from_there() -> None:
    kernel, heard = Kernel(), []
    for time in (1.0, 2.0, 3.0):
        kernel.at(time, lambda time=time: heard.append(time))
    kernel.run(until=2.0)
    assert heard == [1.0, 2.0]
    kernel.run()
    assert heard == [1.0, 2.0, 3.0]


def test_a_call_may_make_more_of_the_same_moment() -> None:
    kernel, heard = Kernel(), []
    kernel.at(1.0, lambda: kernel.at(kernel.now, lambda: heard.append(kernel.now)))
    kernel.run()
    assert heard == [1.0]


@pytest.mark.parametrize("time", [4.0, math.nan, -math.inf])
def test_the_past_is_refused(time: float) -> None:
    with pytest.raises(ValueError, match="before now"):
        Kernel(start=5.0).at(time, lambda: None)
